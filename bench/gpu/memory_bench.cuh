#pragma once
// Times of kernels that memory bounds, as bytes a second and their share of what a copy reaches in the same run: of 1 GiB, whose
// launch and last blocks do not count, and of as many bytes as the kernel moves, whose do. Where a launch is most of a kernel's
// time, also what one takes of several in a row, as the kernels of a recorded step are.

#include <map>

#include "bench/gpu/device_bench.cuh"

namespace quintet::bench {

class MemoryBench {
 public:
  /// Measures the copy, of 1 GiB. `in_a_row`: launches of small kernels, too.
  explicit MemoryBench(const Options& options, bool in_a_row = false)
      : options_(options),
        in_a_row_(in_a_row),
        flush_({options.tiny ? 1 : int64_t{1} << 26}, DType::f32),
        from_({options.tiny ? 1 << 18 : 1 << 28}, DType::f32),
        to_({from_.elements()}, DType::f32) {
    const double bytes = 2.0 * static_cast<double>(from_.bytes());
    print("copy", bytes, [&] { Device::current().copy(to_.data(), from_.data(), from_.bytes()); });
  }
  bool wants(const std::string& name) const { return options_.wants(name); }
  /// Prints a line, and gives the median time of `body`; 0 if --only leaves it out. Operands of a run lie in second-level
  /// cache only if they fit it: 60 MB on an H200, which a flush before each run empties.
  double measure(const std::string& name, double bytes, const std::function<void()>& body) {
    return wants(name) ? print(name, bytes, body) : 0;
  }
  const Options& options() const { return options_; }

 private:
  static constexpr double kSmallBytes = 20e6;
  double time(const std::function<void()>& body) {
    return median(time_calls(
        options_.runs, [&](int) { body(); },
        [&] { QT_GPU::fill_gpu(flush_.view(), 0, stream()); }));
  }
  double time_in_a_row(const std::function<void()>& body) {
    const int launches = options_.tiny ? 1 : 8;
    return time([&] {
             for (int i = 0; i < launches; ++i) body();
           }) /
           launches;
  }
  /// Milliseconds of a copy that moves `bytes`, at most those of the copy of 1 GiB.
  double time_of_copy(double bytes) {
    const int64_t half = std::min(from_.bytes(), static_cast<int64_t>(bytes / 2));
    double& ms = copies_[half];
    if (ms == 0) ms = time([&] { Device::current().copy(to_.data(), from_.data(), half); });
    return ms * bytes / (2.0 * static_cast<double>(half));
  }
  double print(const std::string& name, double bytes, const std::function<void()>& body) {
    const double ms = time(body), rate = bytes / ms * 1e-6;
    if (copy_ == 0) copy_ = rate;
    fmt::print(
        "{{\"name\": \"{}\", \"ms\": {:.4f}, \"gb_s\": {:.0f}, \"of_copy\": {:.3f}, "
        "\"of_equal_copy\": {:.3f}{}}}\n",
        name, ms, rate, rate / copy_, time_of_copy(bytes) / ms,
        in_a_row_ && bytes < kSmallBytes
            ? fmt::format(", \"ms_in_a_row\": {:.5f}", time_in_a_row(body))
            : "");
    std::fflush(stdout);
    return ms;
  }

  Options options_;
  bool in_a_row_;
  double copy_ = 0;
  std::map<int64_t, double> copies_;
  Array flush_, from_, to_;
};

}  // namespace quintet::bench
