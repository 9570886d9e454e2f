#include <atomic>
#include <cstring>
#include <thread>

#include "cublasLt.h"
#include "runtime/base/float8.h"

struct FakeMatmulDesc {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  int8_t fast = 0;
  const float *a_scale = nullptr, *b_scale = nullptr;
};
struct FakeMatrixLayout {  // columns first
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;

  int64_t at(int64_t item, int64_t row, int64_t column) const {
    return item * stride + column * ld + row;
  }
};

namespace {

/// What marks an algorithm as one of this fake's, in the second word.
constexpr uint64_t kMark = 0x5154;

bool known(const cublasLtMatmulAlgo_t& algorithm) {
  return algorithm.data[0] < 3 && algorithm.data[1] == kMark;
}

/// As scales of operands in 8 bits must be, seen on an H200.
bool is_aligned(const float* scale) { return reinterpret_cast<uintptr_t>(scale) % 16 == 0; }

}  // namespace

FakeCublasLt& fake_cublaslt() {
  static FakeCublasLt fake;
  return fake;
}

const char* cudaGetErrorString(cudaError_t) { return "unspecified launch failure"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorLaunchFailure"; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "a GPU of tests");
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t) {
  return std::memset(to, byte, bytes), cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = fake_cublaslt().capturing, cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new double(0), cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (!fake_cublaslt().times) return cudaErrorLaunchFailure;
  return *event = fake_cublaslt().now_ms, cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  return *milliseconds = static_cast<float>(*stop - *start), cudaSuccess;
}

size_t cublasLtGetVersion() { return fake_cublaslt().version; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t*) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t,
                                        cudaDataType_t) {
  return *desc = new FakeMatmulDesc, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  void* const members[] = {&desc->a, &desc->b, &desc->fast, &desc->a_scale, &desc->b_scale};
  std::memcpy(members[attribute], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  return *layout = new FakeMatrixLayout{type, rows, columns, ld}, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  void* const to = attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
                       ? static_cast<void*>(&layout->batch)
                       : static_cast<void*>(&layout->stride);
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t*) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  static std::atomic<int> asking = 0;
  if (asking++ > 0) fake_cublaslt().asked_at_once = true;
  std::this_thread::yield();  // to another that asks, if one may
  --asking;
  for (*count = 0; *count < 3; ++*count)
    results[*count] = {{{static_cast<uint64_t>(*count), kMark}}, 0, CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  result->workspaceSize = 0;
  return known(*algorithm) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t, cudaStream_t) {
  const bool is_fp8 = a_layout->type == CUDA_R_8F_E4M3 || a_layout->type == CUDA_R_8F_E5M2;
  if (!known(*algorithm) || (a_layout->type != CUDA_R_32F && !is_fp8))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (is_fp8 && (desc->a != CUBLAS_OP_T || desc->b != CUBLAS_OP_N || !is_aligned(desc->a_scale) ||
                 !is_aligned(desc->b_scale)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  fake_cublaslt().run(algorithm->data[0]);
  const float scale = is_fp8 ? *desc->a_scale * *desc->b_scale : 1;
  const auto number = [](const void* array, int64_t at) {
    return static_cast<const float*>(array)[at];
  };
  const auto operand = [&](const void* array, const FakeMatrixLayout& layout, int64_t at) {
    if (!is_fp8) return number(array, at);
    return quintet::widened(static_cast<const uint8_t*>(array)[at], layout.type == CUDA_R_8F_E4M3
                                                                        ? quintet::Float8::e4m3
                                                                        : quintet::Float8::e5m2);
  };
  const auto rows = static_cast<int64_t>(d_layout->rows),
             columns = static_cast<int64_t>(d_layout->columns);
  const auto depth =
      static_cast<int64_t>(desc->a == CUBLAS_OP_N ? a_layout->columns : a_layout->rows);
  for (int64_t item = 0; item < d_layout->batch; ++item)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        float sum = 0;
        for (int64_t k = 0; k < depth; ++k)
          sum += operand(a, *a_layout,
                         desc->a == CUBLAS_OP_N ? a_layout->at(item, row, k)
                                                : a_layout->at(item, k, row)) *
                 operand(b, *b_layout,
                         desc->b == CUBLAS_OP_N ? b_layout->at(item, k, column)
                                                : b_layout->at(item, column, k));
        const float before =
            number(beta, 0) == 0 ? 0 : number(beta, 0) * number(c, c_layout->at(item, row, column));
        static_cast<float*>(d)[d_layout->at(item, row, column)] =
            number(alpha, 0) * scale * sum + before;
      }
  return CUBLAS_STATUS_SUCCESS;
}
