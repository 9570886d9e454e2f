#pragma once
// Times of kernels that memory bounds, as bytes a second and their share of what a copy reaches in the same run.

#include "bench/gpu/device_bench.cuh"

namespace quintet::bench {

class MemoryBench {
 public:
  /// Measures the copy, of 1 GiB.
  explicit MemoryBench(const Options& options)
      : options_(options), flush_({options.tiny ? 1 : int64_t{1} << 26}, DType::f32) {
    const int64_t bytes = options.tiny ? 1 << 20 : int64_t{1} << 30;
    const Array a({bytes / 4}, DType::f32), b({bytes / 4}, DType::f32);
    print("copy", 2.0 * static_cast<double>(bytes),
          [&] { Device::current().copy(b.data(), a.data(), bytes); });
  }
  bool wants(const std::string& name) const { return options_.wants(name); }
  /// Prints a line, and gives the median time of `body`; 0 if --only leaves it out. Operands of a run lie in second-level
  /// cache only if they fit it: 60 MB on an H200, which a flush before each run empties.
  double measure(const std::string& name, double bytes, const std::function<void()>& body) {
    return wants(name) ? print(name, bytes, body) : 0;
  }
  const Options& options() const { return options_; }

 private:
  double print(const std::string& name, double bytes, const std::function<void()>& body) {
    const double ms = median(time_calls(
        options_.runs, [&](int) { body(); },
        [&] { QT_GPU::fill_gpu(flush_.view(), 0, stream()); }));
    const double rate = bytes / ms * 1e-6;
    if (copy_ == 0) copy_ = rate;
    fmt::print("{{\"name\": \"{}\", \"ms\": {:.4f}, \"gb_s\": {:.0f}, \"of_copy\": {:.3f}}}\n",
               name, ms, rate, rate / copy_);
    std::fflush(stdout);
    return ms;
  }

  Options options_;
  double copy_ = 0;
  Array flush_;
};

}  // namespace quintet::bench
