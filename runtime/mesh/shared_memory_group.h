#pragma once
// Ranks of one host that compute together on shared memory, phase by phase: what one has written is read
// by all after the next wait(). For tensor-parallel decoding, where a phase takes microseconds: a barrier
// takes 0.3 us between two cores, an all-reduce by MPI 5 to 10.
//
//   SharedMemoryGroup::File file;                                   // the first rank's
//   const std::string path = broadcast(file.path());
//   SharedMemoryGroup group(path, {rank, size}, {.end = end_job});
//   float* x = group.floats(rows * width);                          // of all ranks
//   write_my_columns(x); group.wait(); read(x);

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "runtime/mesh/collectives/collectives.h"

namespace quintet {

class SharedMemoryGroup {
 public:
  static constexpr int kMostRanks = 64;

  /// Memory without a name; the path opens it while this lives. Throws kEnvironment.
  class File {
   public:
    File();
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    std::string path() const;

   private:
    int descriptor_;
  };
  struct Place {
    int rank = 0, size = 1;
  };
  struct Options {
    double timeout_seconds = 600;  // of a wait; 0: for ever
    /// Ends the job, with a message that names the rank that did not come. Does not return.
    std::function<void(const std::string&)> end;
    Group devices = {};  // the same ranks, where they compute on GPUs
  };

  /// Throws kEnvironment if the path cannot be opened, as in containers that hide other processes.
  SharedMemoryGroup(const std::string& path, Place place, Options options);
  ~SharedMemoryGroup();
  SharedMemoryGroup(const SharedMemoryGroup&) = delete;
  SharedMemoryGroup& operator=(const SharedMemoryGroup&) = delete;

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  bool leads() const { return place_.rank == 0; }
  /// For what lies in their GPUs' memory; on CPUs this rank alone.
  const Group& devices() const { return options_.devices; }

  /// Returns when all ranks have called it; what they wrote before is visible then.
  void wait();
  /// Memory that all ranks see, the same for all, aligned to a page; what it held is lost. All call it with the same
  /// count, after nobody reads any more what it gave before.
  float* floats(int64_t count);
  /// The first rank's text, on all; all call it. The others wait for it without a limit of time.
  std::string of_leader(const std::string& text);
  /// Ends the job, as a wait does that takes too long.
  void end(const std::string& message) const { options_.end(message); }

 private:
  struct Line {
    alignas(64) std::atomic<uint32_t> arrived{0};
  };
  struct Shared {
    Line lines[kMostRanks];
    alignas(64) std::atomic<uint32_t> sleepers{0};
    alignas(64) int64_t text_bytes = 0;
  };
  void wait(double timeout_seconds);
  void wait_for(int rank, double timeout_seconds);
  std::byte* mapped(int64_t bytes);

  const Place place_;
  const Options options_;
  int descriptor_;
  Shared* shared_ = nullptr;
  std::byte* memory_ = nullptr;  // behind what is shared
  int64_t bytes_ = 0;
  uint32_t round_ = 0;
};

}  // namespace quintet
