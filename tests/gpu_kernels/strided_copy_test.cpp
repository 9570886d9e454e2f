// Strided copies on the device and on the CPU against one byte at a time: units of 1 to 16 bytes, both
// directions, odd starts, nothing else touched; one launch each.

#include "kernels/strided_copy.h"

#include <numeric>

#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {
namespace {

class StridedCopyTest : public DeviceTest {
 protected:
  /// [parts, outer] runs of `run` bytes between packed bytes and an array in which `gap` bytes lie
  /// between two parts of a row; both begin `shift` bytes behind a multiple of 16.
  void check(int64_t parts, int64_t outer, int64_t run, int64_t gap, int shift) {
    SCOPED_TRACE(
        fmt::format("{} x {} runs of {}, gaps of {}, {} behind", parts, outer, run, gap, shift));
    const int64_t row = parts * (run + gap);
    std::vector<uint8_t> array(static_cast<size_t>(outer * row));
    std::iota(array.begin(), array.end(), uint8_t{1});
    std::vector<uint8_t> packed;
    for (int64_t p = 0; p < parts; ++p)
      for (int64_t i = 0; i < outer; ++i)
        for (int64_t k = 0; k < run; ++k)
          packed.push_back(array[static_cast<size_t>(i * row + p * (run + gap) + k)]);
    std::vector<uint8_t> unpacked(array.size());  // only the runs are written
    for (int64_t i = 0; i < outer; ++i)
      for (int64_t p = 0; p < parts; ++p)
        for (int64_t k = 0; k < run; ++k) {
          const auto at = static_cast<size_t>(i * row + p * (run + gap) + k);
          unpacked[at] = array[at];
        }
    const auto out = [&](void* to, const void* from) {
      return StridedCopy{.to = to,
                         .from = from,
                         .bytes = run,
                         .counts = {parts, outer},
                         .to_strides = {outer * run, run},
                         .from_strides = {run + gap, row}};
    };
    const auto into = [&](void* to, const void* from) {
      const StridedCopy copy = out(to, from);
      return StridedCopy{to, from, run, copy.counts, copy.from_strides, copy.to_strides};
    };
    std::vector<uint8_t> there(packed.size()), back(array.size());
    Device::cpu().copy(out(there.data(), array.data()));
    EXPECT_EQ(there, packed) << "on the CPU";
    Device::cpu().copy(into(back.data(), packed.data()));
    EXPECT_EQ(back, unpacked) << "on the CPU";

    const OnDevice<uint8_t> from(device(), array, shift),
        to(device(), std::vector<uint8_t>(packed.size()), shift);
    const DeviceCounts before = device().counters().read();
    device().copy(out(to.data(), from.data()));
    const DeviceCounts counts = device().counters().read() - before;
    EXPECT_EQ(counts.launches, run * parts * outer > 0 ? 1 : 0);
    EXPECT_EQ(counts.copies, 0);
    EXPECT_EQ(to.back(), packed);
    const OnDevice<uint8_t> again(device(), std::vector<uint8_t>(array.size()), shift);
    device().copy(into(again.data(), to.data()));
    EXPECT_EQ(again.back(), unpacked);
  }
};

TEST_F(StridedCopyTest, RunsOfAllUnits) {
  on_every_schedule([&] {
    for (const int64_t unit : {1, 2, 4, 8, 16})
      for (const int shift : {0, static_cast<int>(unit % 16)}) {
        check(4, 5, 3 * unit, 0, shift);
        check(3, 7, unit, 2 * unit, shift);
        check(1, 300, 5 * unit, unit, shift);
      }
    check(2, 1, 4096, 16, 0);
    check(5, 3, 17, 3, 1);
  });
}

TEST_F(StridedCopyTest, NothingIsNothing) {
  check(0, 4, 8, 0, 0);
  check(4, 0, 8, 0, 0);
  check(4, 4, 0, 8, 0);
}

}  // namespace
}  // namespace quintet::testing
