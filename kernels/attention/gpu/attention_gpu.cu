#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_gpu.h"
#include "kernels/attention/gpu/general.cuh"
#include "kernels/attention/gpu/tensor_core.cuh"
#include "kernels/vectors/operands_gpu.h"

namespace quintet::QT_GPU {
namespace {

using namespace attention;

enum class Path { kGeneral, kMma, kWgmma };

bool is_aligned(std::initializer_list<const View*> views) {
  return std::all_of(views.begin(), views.end(), [](const View* view) {
    return reinterpret_cast<uintptr_t>(view->pointer) % 16 == 0;
  });
}

// Copies of 16 bytes need head sizes that are multiples of 8 and aligned rows.
Path path_of(const View& q, const Attrs& attrs, const View& table, bool aligned) {
  const int64_t depth = q.global[2] / std::max<int64_t>(attrs.get<int64_t>("h"), 1);
  const int64_t reach = table.absent() ? 0 : attrs.get<int64_t>("max_distance");
  const bool fits = q.dtype == DType::bf16 && depth > 0 && depth % 8 == 0 && depth <= 128 &&
                    reach <= kMostReach && aligned && attrs.get_or<double>("scale", 1.0) > 0;
  if (!fits) return Path::kGeneral;
  return simt::device().sm == 90 ? Path::kWgmma : Path::kMma;
}

__global__ void fill_kernel(void* to, int64_t bytes, float* lse, int64_t rows, float value) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < bytes / 2; i += stride) static_cast<uint16_t*>(to)[i] = 0;
  if (lse == nullptr) return;
  for (int64_t i = first; i < rows; i += stride) lse[i] = value;
}

// Zeros in `x`, kMaskedScore in lse (may be null).
void fill(const View& x, float* lse, int64_t rows, Stream stream) {
  if (x.elements() == 0) return;
  simt::launch(fill_kernel, simt::Launch{.grid = dim3(256), .block = dim3(256), .stream = stream},
               x.pointer, x.elements() * size_of(x.dtype), lse, rows, kMaskedScore);
}

void expect(bool condition, const char* op, const char* rule) {
  if (!condition) throw Bug(fmt::format("{}: operands do not have the shapes {}", op, rule));
}

}  // namespace

void attention_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  QT_ASSERT(in.size() == 8 && out.size() == 2);
  const Path path = path_of(in[0], attrs, in[3], is_aligned({&in[0], &in[1], &in[2], &out[0]}));
  const Prepared p(in, attrs, path != Path::kGeneral, stream);
  expect(out[0].sizes == in[0].sizes, "attention", "bq(hd) -> bq(hd)");
  QT_ASSERT(out[0].dtype == p.dtype && (out[1].absent() || out[1].dtype == DType::f32));
  auto* lse = out[1].absent() ? nullptr : out[1].data<float>();
  const Problem& problem = p.problem;
  const int64_t rows = static_cast<int64_t>(problem.batch) * problem.heads * problem.queries;
  if (rows == 0) return;
  if (problem.keys == 0) return fill(out[0], lse, rows, stream);
  auto* result = static_cast<bf16*>(out[0].pointer);
  if (path == Path::kGeneral)
    forward_general(p, out[0].pointer, lse, stream);
  else if (path == Path::kMma)
    forward_mma(p, result, lse, stream);
  else
    forward_wgmma(p, result, lse, stream, problem.depth <= 64);
}

void attention_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  QT_ASSERT(in.size() >= 11 && out.size() == 4);
  const View &result = in[8], &lse = in[9], &dout = in[10];
  const Path path =
      path_of(in[0], attrs, in[3],
              is_aligned({&in[0], &in[1], &in[2], &result, &dout, &out[0], &out[1], &out[2]}));
  Prepared p(in, attrs, path != Path::kGeneral, stream);
  const Problem& problem = p.problem;
  expect(
      result.sizes == in[0].sizes && dout.sizes == in[0].sizes && out[0].sizes == in[0].sizes &&
          out[1].sizes == in[1].sizes && out[2].sizes == in[1].sizes &&
          lse.elements() == static_cast<int64_t>(problem.batch) * problem.heads * problem.queries,
      "attention_grad", "bq(hd), bhq, bq(hd) -> bq(hd), bk(hd), bk(hd)");
  for (const View* view : {&result, &dout, &out[0], &out[1], &out[2]})
    QT_ASSERT(view->dtype == p.dtype);
  QT_ASSERT(lse.dtype == DType::f32);
  const bool has_table = !out[3].absent();
  QT_ASSERT(!has_table || (!in[3].absent() && out[3].dtype == DType::f32));
  auto* dtable = has_table ? out[3].data<float>() : nullptr;
  p.dtable_addend = static_cast<const float*>(addend_of(in, 11, 3));
  if (problem.keys == 0 || problem.queries == 0 || problem.batch * problem.heads == 0) {
    for (const View* view : {&out[0], &out[1], &out[2]}) fill(*view, nullptr, 0, stream);
    if (has_table && !put_addend(p.dtable_addend, out[3])) fill(out[3], nullptr, 0, stream);
    return;
  }
  const auto* dout16 = static_cast<const bf16*>(dout.pointer);
  auto* dq = static_cast<bf16*>(out[0].pointer);
  auto* dk = static_cast<bf16*>(out[1].pointer);
  auto* dv = static_cast<bf16*>(out[2].pointer);
  if (path == Path::kWgmma)
    return backward_wgmma(p, static_cast<const bf16*>(result.pointer),
                          static_cast<const float*>(lse.pointer), dout16, dq, dk, dv, dtable,
                          stream);
  const float unit = path == Path::kGeneral ? 1.0F : kLog2E;
  const Statistics s = make_statistics(p, result, lse, dout, unit, stream);
  if (path == Path::kGeneral)
    backward_general(p, s, dout.pointer, dq, dk, dv, dtable, stream);
  else
    backward_mma(p, s, dout16, dq, dk, dv, dtable, stream);
}

}  // namespace quintet::QT_GPU
