// The largest elements of rows against a sort.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {
namespace {

class Top : public DeviceTest {
 protected:
  void check(const std::vector<float>& logits, int64_t rows, int64_t top) {
    const auto vocab = static_cast<int64_t>(logits.size()) / rows;
    SCOPED_TRACE(fmt::format("rows {}, vocab {}, top {}", rows, vocab, top));
    const auto places = static_cast<size_t>(rows * top);
    const OnDevice<float> there(device(), logits), values(device(), std::vector<float>(places)),
        log_sums(device(), std::vector<float>(static_cast<size_t>(rows)));
    const OnDevice<int32_t> indices(device(), std::vector<int32_t>(places));
    const TopRows task{.logits = there.data(),
                       .rows = rows,
                       .vocab = vocab,
                       .top = top,
                       .values = values.data(),
                       .indices = indices.data(),
                       .log_sums = log_sums.data()};
    run_behind_writers(
        device(), [&] { device().kernels().top(task, device().stream()); }, there);
    const auto got = indices.back();
    const auto got_values = values.back(), got_sums = log_sums.back();
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = logits.data() + r * vocab;
      std::vector<int32_t> order;
      for (int32_t i = 0; i < vocab; ++i)
        if (!std::isnan(row[i])) order.push_back(i);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return row[a] > row[b]; });
      const bool has_nan = static_cast<int64_t>(order.size()) < vocab;
      double sum = 0;
      for (int32_t i : order)
        sum += row[i] == row[order[0]] ? 1 : std::exp(static_cast<double>(row[i] - row[order[0]]));
      order.resize(static_cast<size_t>(top), -1);
      for (int64_t t = 0; t < top; ++t) {
        const auto place = static_cast<size_t>(r * top + t);
        const int32_t want = order[static_cast<size_t>(t)];
        ASSERT_EQ(got[place], want) << "row " << r << ", place " << t;
        ASSERT_EQ(got_values[place], want < 0 ? -INFINITY : row[want]);
      }
      const float log_sum = got_sums[static_cast<size_t>(r)];
      if (has_nan)
        EXPECT_TRUE(std::isnan(log_sum)) << "row " << r;
      else
        EXPECT_NEAR(log_sum, std::log(sum), 2e-6 * std::max(1.0, std::log(sum))) << "row " << r;
    }
  }
};

TEST_F(Top, AgreesWithASort) {
  on_every_schedule([&] {
    check(normals(2 * 301, 1, 3), 2, 8);
    check(normals(3 * 5003, 2, 3), 3, 20);
    check(normals(1, 3), 1, 1);
  });
  check(normals(2 * 32128, 4, 5), 2, 32);
  check(normals(40000, 5, 5), 1, 1);
}

TEST_F(Top, TiesGoToTheLowerIndexAndNaNIsNoNumber) {
  on_every_schedule([&] {
    std::vector<float> logits(2 * 4100);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7 % 5) - 2;
    for (size_t i = 1; i < logits.size(); i += 3) logits[i] *= -0.0f;
    logits[4000] = logits[4090] = logits[17] = 9;
    check(logits, 2, 12);
    logits[18] = NAN;
    check(logits, 2, 12);
    check({NAN, 1, -INFINITY, 3}, 1, 6);
    check({-5, -INFINITY, -7}, 1, 3);
  });
}

}  // namespace
}  // namespace quintet::testing
