#include "kernels/simt/tensor_map.h"

#ifndef QUINTET_EMULATE
#include <cuda.h>
#endif
#include <algorithm>

#include "runtime/base/check.h"

namespace quintet::QT_GPU::simt {
namespace {

int bytes_of(TensorElement e) {
  switch (e) {
    case TensorElement::kBf16:
    case TensorElement::kHalf:
      return 2;
    case TensorElement::kInt8:
      return 1;
    default:
      return 4;
  }
}

void check(TensorElement element, const void* base, std::initializer_list<int64_t> sizes,
           std::initializer_list<int64_t> strides, std::initializer_list<int> box,
           Swizzle swizzle) {
  const auto need = [](bool good, const char* what) {
    if (!good) throw Bug(fmt::format("make_tensor_map: {}", what));
  };
  need(sizes.size() >= 1 && sizes.size() <= 5, "1 to 5 axes");
  need(strides.size() + 1 == sizes.size() && box.size() == sizes.size(),
       "a box size for each axis, a stride for each but the first");
  need(reinterpret_cast<uintptr_t>(base) % 16 == 0, "the base is not a multiple of 16 bytes");
  for (const int64_t size : sizes)
    need(size >= 1 && size <= (int64_t{1} << 32), "an axis is empty");
  for (const int64_t stride : strides) {
    need(stride % 16 == 0 && stride >= 0 && stride < (int64_t{1} << 40),
         "a stride is not a multiple of 16 bytes");
  }
  for (const int b : box) need(b >= 1 && b <= 256, "box sizes are 1 to 256");
  const int row = *box.begin() * bytes_of(element);
  need(row % 16 == 0, "a row of the box is not a multiple of 16 bytes");
  need(swizzle == Swizzle::kNone || row == static_cast<int>(span_of(swizzle)),
       "a row of the box is not the swizzle's span");
}

}  // namespace

#ifdef QUINTET_EMULATE

TensorMap make_tensor_map_of(TensorElement element, const void* base,
                             std::initializer_list<int64_t> sizes,
                             std::initializer_list<int64_t> strides, std::initializer_list<int> box,
                             Swizzle swizzle) {
  check(element, base, sizes, strides, box, swizzle);
  TensorMap map{};
  map.base = static_cast<char*>(const_cast<void*>(base));
  map.rank = static_cast<int>(sizes.size());
  map.element = bytes_of(element);
  map.kind = static_cast<int>(element);
  std::copy(sizes.begin(), sizes.end(), map.sizes);
  map.strides[0] = map.element;
  std::copy(strides.begin(), strides.end(), map.strides + 1);
  std::copy(box.begin(), box.end(), map.box);
  map.swizzle = swizzle;
  return map;
}

#else

namespace {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);

/// The driver's function, without linking the driver.
Encode encode() {
  static const Encode it = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                                12000, cudaEnableDefault, &found);
#else
    const cudaError_t status =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
    QT_CHECK_AS(ExitCode::kEnvironment,
                status == cudaSuccess && found == cudaDriverEntryPointSuccess,
                "the NVIDIA driver has no tensor maps: {}; update it to 525 or newer",
                cudaGetErrorString(status));
    return reinterpret_cast<Encode>(function);
  }();
  return it;
}

CUtensorMapDataType type_of(TensorElement e) {
  switch (e) {
    case TensorElement::kBf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case TensorElement::kHalf:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case TensorElement::kFloat:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case TensorElement::kInt32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

CUtensorMapSwizzle swizzle_of(Swizzle s) {
  switch (s) {
    case Swizzle::k128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    case Swizzle::k64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case Swizzle::k32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    default:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

}  // namespace

TensorMap make_tensor_map_of(TensorElement element, const void* base,
                             std::initializer_list<int64_t> sizes,
                             std::initializer_list<int64_t> strides, std::initializer_list<int> box,
                             Swizzle swizzle) {
  check(element, base, sizes, strides, box, swizzle);
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  TensorMap map;
  cuuint64_t global_sizes[5], global_strides[5];
  cuuint32_t box_sizes[5], element_strides[5] = {1, 1, 1, 1, 1};
  std::copy(sizes.begin(), sizes.end(), global_sizes);
  std::copy(strides.begin(), strides.end(), global_strides);
  std::copy(box.begin(), box.end(), box_sizes);
  const CUresult status = encode()(
      reinterpret_cast<CUtensorMap*>(&map), type_of(element), static_cast<cuuint32_t>(sizes.size()),
      const_cast<void*>(base), global_sizes, global_strides, box_sizes, element_strides,
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(swizzle), CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw Bug(fmt::format("cuTensorMapEncodeTiled: error {}", static_cast<int>(status)));
  }
  return map;
}

#endif

}  // namespace quintet::QT_GPU::simt
