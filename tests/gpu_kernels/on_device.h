#pragma once
// Arrays in the memory of the device under test, and its schedules.
//
//   class Updates : public DeviceTest {};
//   TEST_F(Updates, ...) { on_every_schedule([&] { OnDevice x(device(), values); ... }); }

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "kernels/gpu/gpu_kernels.h"
#include "runtime/device/devices.h"
#include "tests/simt/out_of_bounds.h"
#include "tests/simt/schedules.h"

namespace quintet::testing {

/// The device named by QUINTET_TEST_DEVICE, "emulated" by default.
class DeviceTest : public ::testing::Test {
 protected:
  static std::string name() {
    const char* name = std::getenv("QUINTET_TEST_DEVICE");
    return name != nullptr ? name : "emulated";
  }
  static Device& device() {
    static Device& it = use_device(name());
    return it;
  }
  void SetUp() override {
    try {
      Device::use(device());
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  void TearDown() override { Device::use(Device::cpu()); }
  /// Under three schedules of the emulator and with the kernels of sm_80 and sm_90; once on a GPU.
  template <class Body>
  void on_every_schedule(const Body& body, const std::vector<int>& sms = {80, 90}) {
    name().starts_with("emulated") ? testing::on_every_schedule(body, sms) : body();
  }
};

/// A copy of host numbers on the device, `shift` elements behind a multiple of 16 bytes, with a
/// guard of 16 elements before and after.
template <typename T>
class OnDevice {
 public:
  OnDevice(Device& device, const std::vector<T>& values, int shift = 0)
      : device_(&device), n_(values.size()), start_(kGuard + static_cast<size_t>(shift)) {
    guarded_.assign(n_ + start_ + kGuard, T{});
    for (size_t i = 0; i < guarded_.size(); ++i)
      if (i < start_ || i >= start_ + n_) guarded_[i] = guard();
    std::copy(values.begin(), values.end(), guarded_.begin() + static_cast<int64_t>(start_));
    memory_ = device.memory().allocate(bytes());
    device.copy_in(memory_.get(), guarded_.data(), bytes());
    set_guards(true);
  }
  OnDevice(OnDevice&&) = default;
  ~OnDevice() {
    if (memory_) set_guards(false);
  }
  T* data() const { return reinterpret_cast<T*>(memory_.get()) + start_; }
  int64_t data_bytes() const { return static_cast<int64_t>(n_ * sizeof(T)); }
  View view(const std::vector<int64_t>& sizes) const { return View::of(data(), sizes); }
  View view() const { return view({static_cast<int64_t>(n_)}); }
  /// The numbers now; a changed guard is a failure.
  std::vector<T> back() const {
    std::vector<T> now(guarded_.size());
    set_guards(false);
    device_->copy_out(now.data(), memory_.get(), bytes());
    set_guards(true);
    for (size_t i = 0; i < now.size(); ++i)
      if (i < start_ || i >= start_ + n_) {
        EXPECT_EQ(std::memcmp(&now[i], &guarded_[i], sizeof(T)), 0)
            << "a kernel wrote outside its array";
      }
    return {now.begin() + static_cast<int64_t>(start_),
            now.begin() + static_cast<int64_t>(start_ + n_)};
  }

 private:
  static constexpr size_t kGuard = 16;
  static T guard() {
    T value;
    std::memset(static_cast<void*>(&value), 0x5a, sizeof value);
    return value;
  }
  void set_guards(bool on) const {
    set_out_of_bounds(memory_.get(), start_ * sizeof(T), on);
    set_out_of_bounds(data() + n_, kGuard * sizeof(T), on);
  }
  int64_t bytes() const { return static_cast<int64_t>(guarded_.size() * sizeof(T)); }
  Device* device_;
  size_t n_, start_;
  std::vector<T> guarded_;
  Buffer memory_;
};

/// Records `work` behind kernels that write `inputs`, which are NaN before, and launches that: a kernel which
/// begins early and reads the last one written before it waits gives something else. Each is the last in turn.
template <class Body, typename... T>
void run_behind_writers(Device& device, const Body& work, const OnDevice<T>&... inputs) {
  std::vector<StridedCopy> writes;
  std::vector<Buffer> copies;
  const auto keep = [&](void* data, int64_t bytes) {
    if (bytes == 0) return;
    const Buffer& copy = copies.emplace_back(device.memory().allocate(bytes));
    device.copy(copy.get(), data, bytes);
    device.fill(data, 0xff, bytes);
    writes.push_back({data, copy.get(), bytes, {1, 1}, {0, 0}, {0, 0}});
  };
  (keep(inputs.data(), inputs.data_bytes()), ...);
  static size_t turn = 0;
  std::ranges::rotate(writes, writes.begin() + static_cast<int64_t>(++turn % writes.size()));
  const auto recording = device.record([&] {
    for (const StridedCopy& write : writes) device.copy(write);
    work();
  });
  recording->launch();
  device.synchronize();
}

inline std::vector<float> normals(size_t n, uint64_t seed, double deviation = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<float> values(n);
  for (float& x : values) x = static_cast<float>(normal(random));
  return values;
}
inline std::vector<bfloat16> rounded(const std::vector<float>& values) {
  return {[&] {
    std::vector<bfloat16> r;
    for (float x : values) r.push_back(bfloat16(x));
    return r;
  }()};
}
template <typename T>
std::vector<float> widened(const std::vector<T>& values) {
  std::vector<float> r;
  for (const T x : values) r.push_back(static_cast<float>(x));
  return r;
}
/// float, or rounded to bfloat16.
template <typename T>
std::vector<T> as(const std::vector<float>& values) {
  if constexpr (std::is_same_v<T, float>)
    return values;
  else
    return rounded(values);
}

/// |got - want| <= tolerance * max(|want|, scale); NaN where NaN is wanted.
inline void expect_near(const std::vector<float>& got, const std::vector<float>& want,
                        double tolerance, double scale, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double g = static_cast<double>(got[i]), w = static_cast<double>(want[i]);
    ASSERT_TRUE((std::isnan(w) && std::isnan(g)) || g == w ||
                std::abs(g - w) <= tolerance * std::max(std::abs(w), scale))
        << what << ", element " << i << ": got " << g << ", want " << w;
  }
}

}  // namespace quintet::testing
