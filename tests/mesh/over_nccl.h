#pragma once
// Ranks that are threads over the fake of NCCL (fake_nccl/), each with a watchdog.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/mesh/collectives/collectives_nccl.h"
#include "runtime/mesh/collectives/collectives_threads.h"
#include "runtime/mesh/collectives/watchdog.h"
#include "tests/harness/wait_for.h"

namespace quintet::testing {

/// Watchdogs that do not hear of each other.
class Silence final : public WatchChannel {
 public:
  void send(const Note&) override {}
  std::vector<Note> receive() override { return {}; }
};

struct Job {
  bool until_it_ends = false;  // ranks wait for it
  double collective_timeout = 60, init_timeout = 60;
  std::optional<int> judge = {};  // the rank whose watchdog ends the job; none: the first that does
  std::function<void()> at_end = [] {};  // where the process would end
  /// Of a rank; by default the null stream is its stream, which is the rank itself.
  std::function<Device&(int rank)> device = [](int) -> Device& { return Device::cpu(); };
};

/// Runs a case over NCCL; what ended the job, if a watchdog did.
inline std::string over_nccl(int count, const std::function<void(Comm&)>& body,
                             const Job& job = {}) {
  std::mutex mutex;
  std::string ended;
  const auto has_ended = [&] {
    const std::lock_guard lock(mutex);
    return !ended.empty();
  };
  run_ranks(count, [&](Comm& threads) {
    Watchdog watchdog({.timeout_seconds = job.collective_timeout,
                       .signalled = {},
                       .end =
                           [&](const std::string& what) {
                             if (job.judge.value_or(threads.rank()) != threads.rank()) return;
                             const std::lock_guard lock(mutex);
                             if (ended.empty()) ended = what;
                             job.at_end();
                           }},
                      threads.rank(), threads.hosts(), {}, std::make_unique<Silence>());
    const auto comm =
        open_nccl(threads.channel(), watchdog, job.device(threads.rank()),
                  {.ranks = threads.world().ranks(), .init_timeout = job.init_timeout});
    body(*comm);
    if (job.until_it_ends) {
      EXPECT_TRUE(wait_for(has_ended));
    }
    comm->world().barrier();  // nobody leaves while others wait
  });
  return ended;
}

/// A function of the fake, which is loaded as NCCL is.
template <typename Function>
Function* fake(const char* name) {
  void* library = dlopen(FAKE_NCCL, RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Function*>(dlsym(library, name));
}
inline void set_fault(FakeFault fault) { fake<decltype(set_fake_fault)>("set_fake_fault")(fault); }
inline int splits() { return fake<decltype(fake_splits)>("fake_splits")(); }
inline int nccl_blocks() { return fake<decltype(fake_blocks)>("fake_blocks")(); }
inline int aborts() { return fake<decltype(fake_aborts)>("fake_aborts")(); }

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The library that is loaded as NCCL.
class Nccl : public ::testing::Test {
 protected:
  void SetUp() override { use(FAKE_NCCL); }
  void TearDown() override {
    set_fault(FakeFault::none);
    break_fake_cuda(false);
  }
  static void use(const std::string& path) { setenv("QUINTET_NCCL", path.c_str(), 1); }
};

}  // namespace quintet::testing
