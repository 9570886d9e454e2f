#include <cuda_runtime.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "kernels/simt/cuda_check.h"
#include "kernels/simt/host/autotuner.h"
#include "kernels/simt/host/cublaslt.h"
#include "kernels/simt/host/gemm.h"
#include "kernels/simt/host/product_workspace.h"
#include "kernels/simt/host/scratch.h"
#include "runtime/base/check.h"
#include "runtime/base/memory/placement.h"

namespace quintet::cuda::simt {
namespace {

constexpr int kProposals = 8;

void check(cublasStatus_t status, const char* what, const Gemm& g) {
  QT_CHECK_AS(ExitCode::kEnvironment, status == CUBLAS_STATUS_SUCCESS,
              "cuBLASLt: {}: status {} for [{} x {}] = [{} x {}] {}", what,
              static_cast<int>(status), g.m, g.n, g.m, g.k, g.fp8 ? "in 8 bits" : name_of(g.type));
}

/// The largest power of two up to 256 that divides the address.
uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 256;
  return static_cast<uint32_t>(address & -address);
}

/// What cuBLASLt reads as its C: result or not, it wants an address.
const void* addend_of(const Gemm& g) { return g.addend != nullptr ? g.addend : g.c; }

cudaDataType_t cuda_type(DType type) {
  QT_ASSERT(type == DType::f32 || type == DType::bf16);
  return type == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
}

cudaDataType_t cuda_type(Float8 format) {
  return format == Float8::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

/// cuBLASLt's description of a problem. It thinks in columns: c^T = op(b)^T op(a)^T.
class Problem {
 public:
  explicit Problem(const Gemm& g) {
    check(cublaslt().MatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "create", g);
    const cublasOperation_t first = g.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = g.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublaslt().MatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                      sizeof first);
    cublaslt().MatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                      sizeof second);
    if (g.fp8) {
      const int8_t fast = g.fp8->fast_accumulation ? 1 : 0;
      cublaslt().MatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast,
                                        sizeof fast);
      set_scales(*g.fp8);
    }
    layout(b_, g.fp8 ? cuda_type(g.fp8->b) : cuda_type(g.type), g.b_transposed ? g.n : g.k,
           g.b_transposed ? g.k : g.n, g.ldb, g, g.b_stride);
    layout(a_, g.fp8 ? cuda_type(g.fp8->a) : cuda_type(g.type), g.a_transposed ? g.k : g.m,
           g.a_transposed ? g.m : g.k, g.lda, g, g.a_stride);
    layout(c_, cuda_type(g.c_type), g.m, g.n, g.ldc, g, g.c_stride);
  }
  ~Problem() {
    for (cublasLtMatrixLayout_t l : {a_, b_, c_}) cublaslt().MatrixLayoutDestroy(l);
    cublaslt().MatmulDescDestroy(operation_);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  std::vector<cublasLtMatmulAlgo_t> proposals(cublasLtHandle_t handle, const Gemm& g) const {
    cublasLtMatmulPreference_t preference;
    check(cublaslt().MatmulPreferenceCreate(&preference), "preference", g);
    const size_t workspace = kProductWorkspace;
    cublaslt().MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &workspace, sizeof workspace);
    for (const auto& [attribute, pointer] :
         {std::pair(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, g.b),
          {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, g.a},
          {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, addend_of(g)},
          {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<const void*>(g.c)}}) {
      const uint32_t alignment = alignment_of(pointer);
      cublaslt().MatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment);
    }
    cublasLtMatmulHeuristicResult_t found[kProposals];
    int count = 0;
    const auto status = cublaslt().MatmulAlgoGetHeuristic(handle, operation_, b_, a_, c_, c_,
                                                          preference, kProposals, found, &count);
    cublaslt().MatmulPreferenceDestroy(preference);
    check(status, "no algorithm", g);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i)
      if (found[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(found[i].algo);
    check(algorithms.empty() ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS, "no algorithm",
          g);
    return algorithms;
  }
  /// Whether an algorithm of an earlier process does this here.
  bool takes(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm) const {
    cublasLtMatmulHeuristicResult_t result{};
    return cublaslt().MatmulAlgoCheck(handle, operation_, b_, a_, c_, c_, &algorithm, &result) ==
               CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= static_cast<size_t>(kProductWorkspace);
  }
  /// Of the next runs; they are part of what a run reads, not of the problem.
  void set_scales(const Float8Operands& operands) const {
    cublaslt().MatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                      &operands.b_scale, sizeof operands.b_scale);
    cublaslt().MatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                      &operands.a_scale, sizeof operands.a_scale);
  }
  cublasStatus_t run(cublasLtHandle_t handle, const Gemm& g, const cublasLtMatmulAlgo_t& algorithm,
                     void* workspace, cudaStream_t stream) const {
    const float beta = g.addend != nullptr ? 1.0f : 0.0f;
    return cublaslt().Matmul(handle, operation_, &g.alpha, g.b, b_, g.a, a_, &beta, addend_of(g),
                             c_, g.c, c_, &algorithm, workspace, kProductWorkspace, stream);
  }

 private:
  /// A row-major [rows, columns] matrix is a column-major [columns, rows] one.
  static void layout(cublasLtMatrixLayout_t& layout, cudaDataType_t type, int64_t rows,
                     int64_t columns, int64_t stride, const Gemm& g, int64_t batch_stride) {
    check(
        cublaslt().MatrixLayoutCreate(&layout, type, static_cast<uint64_t>(columns),
                                      static_cast<uint64_t>(rows), stride != 0 ? stride : columns),
        "layout", g);
    if (g.batch == 1) return;
    const auto count = static_cast<int32_t>(g.batch);
    cublaslt().MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                        sizeof count);
    cublaslt().MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                        &batch_stride, sizeof batch_stride);
  }
  cublasLtMatmulDesc_t operation_{};
  cublasLtMatrixLayout_t a_{}, b_{}, c_{};
};

/// 0: not in 8 bits.
int kind_of(const std::optional<Float8Operands>& fp8) {
  if (!fp8) return 0;
  return 1 + static_cast<int>(fp8->a) + 2 * static_cast<int>(fp8->b) +
         (fp8->fast_accumulation ? 4 : 0);
}

auto key_of(const Gemm& g) {
  return std::tuple(alignment_of(g.a), alignment_of(g.b), alignment_of(g.c),
                    g.addend != nullptr ? alignment_of(g.addend) : 0, g.m, g.n, g.k, g.type,
                    g.c_type, g.a_transposed, g.b_transposed, g.lda, g.ldb, g.ldc, g.batch,
                    g.a_stride, g.b_stride, g.c_stride, kind_of(g.fp8));
}

std::string text_of(const decltype(key_of(Gemm{}))& key) {
  return std::apply(
      [](const auto&... parts) {
        std::string text;
        ((text += fmt::format("{}{}", text.empty() ? "" : " ", static_cast<int64_t>(parts))), ...);
        return text;
      },
      key);
}

/// Plans by problem, made at first use; for any number of threads.
class Library {
 public:
  Library() {
    QT_CHECK_AS(ExitCode::kEnvironment, cublaslt().Create(&handle_) == CUBLAS_STATUS_SUCCESS,
                "cuBLASLt does not start; check that the driver fits CUDA {}", CUDART_VERSION);
  }
  void run(const Gemm& g, cudaStream_t stream) {
    const Scratch workspace(kProductWorkspace);
    Plan& plan = find(g, workspace.data<void>(), stream);
    std::unique_lock lock(mutex_, std::defer_lock);
    if (g.fp8) {
      lock.lock();
      plan.problem->set_scales(*g.fp8);
    }
    check(plan.problem->run(handle_, g, plan.algorithm, workspace.data<void>(), stream),
          "matrix product", g);
    autotuner_.save_when_due();
  }

 private:
  struct Plan {
    std::unique_ptr<Problem> problem;
    cublasLtMatmulAlgo_t algorithm{};
  };
  Plan& find(const Gemm& g, void* workspace, cudaStream_t stream) {
    const auto key = key_of(g);
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    Plan plan{std::make_unique<Problem>(g), {}};
    plan.algorithm = choose(*plan.problem, text_of(key), g, workspace, stream);
    return plans_.emplace(key, std::move(plan)).first->second;
  }
  cublasLtMatmulAlgo_t choose(const Problem& problem, const std::string& name, const Gemm& g,
                              void* workspace, cudaStream_t stream) {
    cublasLtMatmulAlgo_t cached;
    if (const std::string bytes = autotuner_.find(name); bytes.size() == sizeof cached) {
      std::memcpy(&cached, bytes.data(), sizeof cached);
      if (problem.takes(handle_, cached)) return cached;
    }
    const auto proposals = problem.proposals(handle_, g);
    if (!autotuner_.may_measure(stream)) return proposals[0];
    const cublasLtMatmulAlgo_t best = fastest(problem, proposals, g, workspace, stream);
    autotuner_.add(name, {reinterpret_cast<const char*>(&best), sizeof best});
    return best;
  }
  /// Proposals are timed into other memory than c, which may be its own addend.
  cublasLtMatmulAlgo_t fastest(const Problem& problem,
                               const std::vector<cublasLtMatmulAlgo_t>& proposals, Gemm g,
                               void* workspace, cudaStream_t stream) {
    if (proposals.size() == 1) return proposals[0];
    const int64_t rows = g.batch == 1 ? g.m : 0;
    const MemoryTrace::Pause pause;
    const Scratch other((rows * (g.ldc != 0 ? g.ldc : g.n) +
                         (g.batch == 1 ? 0 : (g.batch - 1) * g.c_stride + g.m * g.n)) *
                        size_of(g.c_type));
    if (g.addend == g.c) g.addend = other.data<void>();
    g.c = other.data<void>();
    return proposals[fastest_of(stream, proposals.size(), [&](size_t i) {
      // Some proposals are refused only now.
      return problem.run(handle_, g, proposals[i], workspace, stream) == CUBLAS_STATUS_SUCCESS;
    })];
  }

  Autotuner& autotuner_ = Autotuner::instance();
  cublasLtHandle_t handle_{};
  std::mutex
      mutex_;  // of the plans; what a plan is does not change, but for the scales of one in 8 bits
  std::map<decltype(key_of(Gemm{})), Plan> plans_;
};

}  // namespace

void gemm(Stream stream, const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) {
    QT_ASSERT(g.batch == 1 && (g.ldc == 0 || g.ldc == g.n));
    const auto bytes = static_cast<size_t>(g.m * g.n * size_of(g.c_type));
    const auto cuda_stream = static_cast<cudaStream_t>(stream.handle);
    if (g.addend == nullptr)
      QT_CUDA(cudaMemsetAsync(g.c, 0, bytes, cuda_stream));
    else if (g.addend != g.c)
      QT_CUDA(cudaMemcpyAsync(g.c, g.addend, bytes, cudaMemcpyDeviceToDevice, cuda_stream));
    return;
  }
  static Library library;
  library.run(g, static_cast<cudaStream_t>(stream.handle));
  quintet::Device::current().counters().launch();
}

}  // namespace quintet::cuda::simt
