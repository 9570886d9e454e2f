#include "runtime/mesh/collectives/nccl_memory.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <set>

#include "runtime/mesh/collectives/nccl_library.h"

namespace quintet {
namespace {

constexpr int64_t kLeast = 2 << 20;

class NcclMemory final : public MemorySource {
 public:
  NcclMemory(decltype(ncclMemAlloc)* take, decltype(ncclMemFree)* give_back, MemorySource& before)
      : take_(take), give_back_(give_back), before_(before) {}

  void* allocate(int64_t bytes) override {
    void* block = nullptr;
    if (bytes < kLeast || take_(&block, static_cast<size_t>(bytes)) != ncclSuccess)
      return before_.allocate(bytes);
    const std::lock_guard lock(mutex_);
    blocks_.insert(block);
    return block;
  }
  void release(void* block, int64_t bytes) override {
    {
      const std::lock_guard lock(mutex_);
      if (blocks_.erase(block) == 0) return before_.release(block, bytes);
    }
    cudaDeviceSynchronize();  // as cudaFree does: queued work may use the block
    give_back_(block);
  }
  std::string name() const override { return before_.name(); }

 private:
  decltype(ncclMemAlloc)* const take_;
  decltype(ncclMemFree)* const give_back_;
  MemorySource& before_;
  std::mutex mutex_;
  std::set<void*> blocks_;
};

}  // namespace

void allocate_by_nccl(Memory& memory) {
  const SharedLibrary library(kNccl);
  const auto take = library.function_if_there<decltype(ncclMemAlloc)>("ncclMemAlloc");
  const auto give_back = library.function_if_there<decltype(ncclMemFree)>("ncclMemFree");
  if (take == nullptr || give_back == nullptr) return;
  // Never destroyed: blocks may outlive everything.
  memory.change_source(
      [&](MemorySource& before) { return new NcclMemory(take, give_back, before); });
}

}  // namespace quintet
