#pragma once
// What the benches of this folder share: flags, arrays on the device, times of calls, a program's end. Compiled by nvcc for a
// GPU, and for the emulator, where times say nothing and the programs run in CI (--device=emulated --tiny).
//
//   int main(int argc, char** argv) { return run_program(argc, argv, run); }  // --device=cuda --tiny --only=rms_norm --runs=20 --profile
//   Array x({rows, d}, DType::bf16);
//   x.vary(-1, 1);
//   const std::vector<double> ms = time_calls(options.runs, [&](int) { QT_GPU::scale_gpu(...); });

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/elementwise/elementwise_gpu.h"
#include "runtime/device/devices.h"
#ifndef QUINTET_EMULATE
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include "kernels/simt/cuda_check.h"
#endif

namespace quintet::bench {

struct Options {
  std::string device = "cuda", only;
  std::vector<std::string> skip;
  bool tiny = false;
  bool check = false;  // cases for a sanitizer, of a program that has them
  bool profile =
      false;  // of a GPU: ncu --profile-from-start=off sees the calls that are timed, and nothing around them
  int runs = 20;
  /// Whether --only, a part of a name, and each --skip, a whole one, let this one be measured.
  bool wants(const std::string& name) const {
    return name.find(only) != std::string::npos && std::ranges::find(skip, name) == skip.end();
  }
};

inline bool profiles = false;  // Options::profile of the program

/// Makes --device the current one. Throws a usage error for other flags.
inline Options parse(int argc, char** argv, bool has_check) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const std::string value =
        flag.substr(std::min(flag.size(), flag.find('=')) + (flag.find('=') != std::string::npos));
    if (flag == "--tiny")
      options.tiny = true;
    else if (flag == "--profile")
      options.profile = true;
    else if (flag == "--check" && has_check)
      options.check = true;
    else if (flag.starts_with("--device="))
      options.device = value;
    else if (flag.starts_with("--only="))
      options.only = value;
    else if (flag.starts_with("--skip="))
      options.skip.push_back(value);
    else if (flag.starts_with("--runs="))
      options.runs = std::atoi(value.c_str());
    else
      fail(ExitCode::kUsage, "{}: expected {}--device, --only, --profile, --runs, --skip or --tiny",
           flag, has_check ? "--check, " : "");
  }
  if (options.tiny) options.runs = std::min(options.runs, 2);
  use_device(options.device);
  profiles = options.profile;
  return options;
}

inline Stream stream() { return Device::current().stream(); }

/// An array on the device, at first all `value`.
class Array {
 public:
  Array() = default;
  Array(std::vector<int64_t> sizes, DType dtype, float value = 0)
      : sizes_(std::move(sizes)), dtype_(dtype) {
    buffer_ = Device::current().memory().allocate(std::max<int64_t>(bytes(), 1));
    if (dtype == DType::f32 || dtype == DType::bf16)
      QT_GPU::fill_gpu(view(), value, stream());
    else
      Device::current().fill(buffer_.get(), 0, bytes());
  }
  View view() const {
    View v = View::of(reinterpret_cast<float*>(buffer_.get()), sizes_);
    v.dtype = dtype_;
    return v;
  }
  template <typename T = void>
  T* data() const {
    return reinterpret_cast<T*>(buffer_.get());
  }
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t s : sizes_) n *= s;
    return n;
  }
  int64_t bytes() const { return elements() * size_of(dtype_); }

  /// Uniform numbers, rounded to bfloat16 whatever the dtype; the same for the same seed. A pattern of at most 2^20, repeated.
  Array& vary(float low, float high, uint32_t seed = 12345) {
    return fill_with(
        [&](uint32_t random) {
          return low + (high - low) * static_cast<float>(random >> 8) / 16777216.0f;
        },
        seed);
  }
  /// The same of normal ones.
  Array& vary_normally(float deviation, uint32_t seed) {
    uint32_t state = seed;
    return fill_with(
        [&](uint32_t random) {
          float sum =
              static_cast<float>(random >> 8) / 16777216.0f - 6;  // the sum of 12 uniform numbers
          for (int i = 1; i < 12; ++i)
            sum += static_cast<float>((state = next(state)) >> 8) / 16777216.0f;
          return sum * deviation;
        },
        seed + 1);
  }
  /// Whole numbers from 0 to below; `skewed`: the first are frequent, as words are.
  Array& ids(int64_t below, bool skewed) {
    std::vector<int32_t> numbers(static_cast<size_t>(elements()));
    uint32_t state = 777;
    for (int32_t& x : numbers) {
      double u = static_cast<double>((state = next(state)) >> 8) / 16777216.0;
      if (skewed) u = u * u * u * u;
      x = static_cast<int32_t>(u * static_cast<double>(below));
    }
    return store(numbers);
  }
  template <typename T>
  Array& store(const std::vector<T>& values) {
    Device::current().copy_in(buffer_.get(), values.data(), bytes());
    return *this;
  }
  /// The first `count` numbers.
  std::vector<float> load(int64_t count) const {
    std::vector<float> values(static_cast<size_t>(count));
    if (dtype_ == DType::f32) {
      Device::current().copy_out(values.data(), buffer_.get(), count * 4);
      return values;
    }
    std::vector<bfloat16> rounded(values.size());
    Device::current().copy_out(rounded.data(), buffer_.get(), count * 2);
    std::ranges::transform(rounded, values.begin(),
                           [](bfloat16 x) { return static_cast<float>(x); });
    return values;
  }

 private:
  static uint32_t next(uint32_t state) { return state * 1664525u + 1013904223u; }
  template <typename Number>
  Array& fill_with(const Number& number, uint32_t state) {
    constexpr int64_t kPeriod = 1 << 20;
    std::vector<bfloat16> rounded(static_cast<size_t>(std::min(kPeriod, elements())));
    for (bfloat16& x : rounded) x = bfloat16(number(state = next(state)));
    const std::vector<float> wide(rounded.begin(), rounded.end());
    const void* from =
        dtype_ == DType::f32 ? static_cast<const void*>(wide.data()) : rounded.data();
    for (int64_t at = 0; at < elements(); at += kPeriod)
      Device::current().copy_in(buffer_.get() + at * size_of(dtype_), from,
                                std::min(kPeriod, elements() - at) * size_of(dtype_));
    Device::current().synchronize();
    return *this;
  }

  std::vector<int64_t> sizes_;
  DType dtype_ = DType::f32;
  Buffer buffer_;
};

/// A moment of the device's queue.
class Moment {
 public:
#ifdef QUINTET_EMULATE
  void record() {
    Device::current().synchronize();
    at_ = std::chrono::steady_clock::now();
  }
  double ms_until(const Moment& later) const {
    return std::chrono::duration<double, std::milli>(later.at_ - at_).count();
  }

 private:
  std::chrono::steady_clock::time_point at_;
#else
  Moment() { QT_CUDA(cudaEventCreate(&event_)); }
  ~Moment() { cudaEventDestroy(event_); }
  Moment(const Moment&) = delete;
  void record() { QT_CUDA(cudaEventRecord(event_, static_cast<cudaStream_t>(stream().handle))); }
  double ms_until(const Moment& later) const {
    float ms = 0;
    QT_CUDA(cudaEventSynchronize(later.event_));
    QT_CUDA(cudaEventElapsedTime(&ms, event_, later.event_));
    return static_cast<double>(ms);
  }

 private:
  cudaEvent_t event_{};
#endif
};

/// What a profiler sees, for its lifetime; the emulator has none.
class Profiled {
 public:
#ifdef QUINTET_EMULATE
  explicit Profiled(bool) {}
#else
  explicit Profiled(bool on) : on_(on && profiles) {
    if (on_) QT_CUDA(cudaProfilerStart());
  }
  ~Profiled() {
    if (on_) cudaProfilerStop();
  }
  Profiled(const Profiled&) = delete;

 private:
  bool on_;
#endif
};

/// Milliseconds of `runs` calls of body(0), body(1), ..., each after before(), whose time does not count, behind three
/// that do not either. All are queued at once, so that a body of short kernels does not wait for the host.
inline std::vector<double> time_calls(
    int runs, const std::function<void(int)>& body, const std::function<void()>& before = [] {}) {
  constexpr int kWarmUp = 3;
  std::vector<Moment> begins(static_cast<size_t>(runs)), ends(static_cast<size_t>(runs));
  for (int run = -kWarmUp; run < runs; ++run) {
    before();
    if (run >= 0) begins[static_cast<size_t>(run)].record();
    const Profiled shown(run >= 0);
    body(run + kWarmUp);
    if (run >= 0) ends[static_cast<size_t>(run)].record();
  }
  std::vector<double> times;
  for (size_t i = 0; i < begins.size(); ++i) times.push_back(begins[i].ms_until(ends[i]));
  return times;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// main(): what `run` throws is printed, and its exit code given. `has_check`: it knows Options::check.
inline int run_program(int argc, char** argv, void (*run)(const Options&), bool has_check = false) {
  try {
    run(parse(argc, argv, has_check));
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return static_cast<int>(error.code());
  }
}

}  // namespace quintet::bench
