#include "kernels/device.h"
#include "kernels/simt/launch.cuh"
#include "kernels/simt/resident.cuh"

#ifdef QUINTET_EMULATE

namespace quintet::emulated::simt {
int64_t resident_blocks(const void*, const Launch&) { return device().multiprocessors; }
}  // namespace quintet::emulated::simt

#else

#include <mutex>
#include <unordered_map>

#include "kernels/simt/cuda_check.h"

namespace quintet::cuda::simt {
namespace {

void check(cudaError_t status, const Launch& how, const char* what) {
  if (status == cudaSuccess) return;
  throw Bug(fmt::format(
      "{}:{}: {}: {} (grid {}x{}x{}, block {}x{}x{}, {} bytes of shared memory, cluster {})",
      how.file, how.line, what, cudaGetErrorString(status), how.grid.x, how.grid.y, how.grid.z,
      how.block.x, how.block.y, how.block.z, how.shared, how.cluster));
}

/// Raises the kernel's limits on the current device, once for each larger request. Returns whether
/// the kernel was compiled to wait where it is launched early.
bool raise_limits(const void* kernel, const Launch& how) {
  struct Raised {
    size_t shared = 48 << 10;
    bool cluster = false;
    int virtual_sm = 0;  // 0: not asked yet
  };
  static std::mutex mutex;
  static std::unordered_map<const void*, Raised> raised;  // one device a process
  const std::scoped_lock lock(mutex);
  Raised& it = raised[kernel];
  if (how.shared > it.shared) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(how.shared)),
          how, "more shared memory than the device has");
    it.shared = how.shared;
  }
  if (how.cluster > 8 && !it.cluster) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), how,
          "large cluster");
    it.cluster = true;
  }
  if (how.early && it.virtual_sm == 0) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, kernel), how, "kernel attributes");
    it.virtual_sm = attributes.ptxVersion;
  }
  return it.virtual_sm >= 90;
}

}  // namespace

void launch_raw(const void* kernel, const Launch& how, void** args) {
  const bool waits = raise_limits(kernel, how);
  cudaLaunchConfig_t config = {};
  config.gridDim = how.grid;
  config.blockDim = how.block;
  config.dynamicSmemBytes = how.shared;
  config.stream = static_cast<cudaStream_t>(how.stream.handle);
  cudaLaunchAttribute attributes[3] = {};
  if (how.cluster > 1) {
    cudaLaunchAttribute& it = attributes[config.numAttrs++];
    it.id = cudaLaunchAttributeClusterDimension;
    it.val.clusterDim = {how.cluster, 1, 1};
  }
  if (how.cooperative) {
    cudaLaunchAttribute& it = attributes[config.numAttrs++];
    it.id = cudaLaunchAttributeCooperative;
    it.val.cooperative = 1;
  }
  if (how.early && waits) {
    cudaLaunchAttribute& it = attributes[config.numAttrs++];
    it.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    it.val.programmaticStreamSerializationAllowed = 1;
  }
  config.attrs = attributes;
  check(cudaLaunchKernelExC(&config, kernel, args), how, "kernel launch failed");
  quintet::Device::current().counters().launch();
}

int64_t resident_blocks(const void* kernel, const Launch& how) {
  raise_limits(kernel, how);
  int blocks = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, kernel, static_cast<int>(how.block.x * how.block.y * how.block.z), how.shared),
        how, "blocks a multiprocessor");
  return int64_t{blocks} * device().multiprocessors;
}

const Device& device() {
  static const Device it = [] {
    int number = 0, major = 0, minor = 0, multiprocessors = 0, shared = 0;
    const auto ask = [&](int* value, cudaDeviceAttr attribute) {
      QT_CUDA(cudaDeviceGetAttribute(value, attribute, number));
    };
    QT_CUDA(cudaGetDevice(&number));
    ask(&major, cudaDevAttrComputeCapabilityMajor);
    ask(&minor, cudaDevAttrComputeCapabilityMinor);
    ask(&multiprocessors, cudaDevAttrMultiProcessorCount);
    ask(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin);
    return Device{10 * major + minor, multiprocessors, static_cast<size_t>(shared)};
  }();
  return it;
}

}  // namespace quintet::cuda::simt

#endif
