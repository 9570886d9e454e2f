#pragma once
// What a device's host side has asked of it, counted where it happens: `bench train` and `bench
// layouts` print a step's.
//
//   const DeviceCounts before = device.counters().read();
//   ... a step ...
//   const DeviceCounts step = device.counters().read() - before;

#include <atomic>
#include <cstdint>

namespace quintet {

/// Of a GPU, real or emulated; 0 on the CPU, where nothing is launched.
struct DeviceCounts {
  int64_t launches = 0;    // kernels, products and recordings
  int64_t copies = 0;      // from, to or within its memory
  int64_t host_waits = 0;  // the host stood still until the device was done
  int64_t bytes_to_host = 0;
  int64_t staged_bytes =
      0;  // through the host to other ranks, where ranks share a GPU; not in the others

  friend DeviceCounts operator-(const DeviceCounts& a, const DeviceCounts& b) {
    return {a.launches - b.launches, a.copies - b.copies, a.host_waits - b.host_waits,
            a.bytes_to_host - b.bytes_to_host, a.staged_bytes - b.staged_bytes};
  }
};

/// Counted by any thread.
class DeviceCounters {
 public:
  void launch() { ++launches_; }
  void copy(int64_t to_host = 0) { ++copies_, bytes_to_host_ += to_host; }
  void wait() { ++host_waits_; }
  /// A copy to or from the host that was counted, with its wait, is for other ranks.
  void stage_out(int64_t bytes) {
    --copies_, --host_waits_, bytes_to_host_ -= bytes, staged_bytes_ += bytes;
  }
  void stage_in(int64_t bytes) { --copies_, staged_bytes_ += bytes; }
  DeviceCounts read() const {
    return {launches_, copies_, host_waits_, bytes_to_host_, staged_bytes_};
  }

 private:
  std::atomic<int64_t> launches_ = 0, copies_ = 0, host_waits_ = 0, bytes_to_host_ = 0,
                       staged_bytes_ = 0;
};

}  // namespace quintet
