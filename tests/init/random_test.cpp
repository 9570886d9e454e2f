// Threefry and the arrays drawn with it against JAX's (fixtures init/random.safetensors) and
// against known answers; the values must not depend on how an array is cut.

#include "kernels/random/random.h"

#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

using testing::fixture_root;
using testing::near_array;
using testing::Tolerance;
constexpr Tolerance kExact{0, 0}, kNormal{2e-6, 0};

Key key_of(const HostArray& array) {
  const auto words = array.as<uint32_t>();
  return {words[0], words[1]};
}

TEST(Threefry, GivesTheKnownAnswersOfItsAuthors) {
  // Random123's kat_vectors, threefry2x32 with 20 rounds.
  EXPECT_EQ(threefry2x32({0, 0}, 0, 0), (Key{0x6b200159u, 0x99ba4efeu}));
  EXPECT_EQ(threefry2x32({~0u, ~0u}, ~0u, ~0u), (Key{0x1cb996fcu, 0xbb002be7u}));
  EXPECT_EQ(threefry2x32({0x13198a2eu, 0x03707344u}, 0x243f6a88u, 0x85a308d3u),
            (Key{0xc4923a9cu, 0x483df7a0u}));
}

class RandomFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(fixture_root() / "init/random.safetensors"))
      GTEST_SKIP() << "no init/random.safetensors under " << fixture_root();
    arrays_ = read_safetensors(fixture_root() / "init/random.safetensors");
    seed_ = Json::read(fixture_root() / "init/meta.json")["seed"].as_int();
  }
  HostArrays arrays_;
  int64_t seed_ = 0;
};

TEST_F(RandomFixture, KeysAreJaxKeys) {
  const Key root = key_from_seed(seed_);
  int checked = 0;
  for (const auto& [name, array] : arrays_) {
    if (!name.ends_with("/key")) continue;
    const std::string how = name.substr(0, name.size() - 4);
    SCOPED_TRACE(how);
    Key key = root;
    if (how.starts_with("split")) {
      const size_t underscore = how.find('_');
      const auto keys = split(root, std::stoll(how.substr(5, underscore - 5)));
      key = keys.at(std::stoull(how.substr(underscore + 1)));
    } else if (how.starts_with("fold_in_")) {
      key = fold_in(root, static_cast<uint32_t>(std::stoull(how.substr(8))));
    } else {
      ASSERT_EQ(how, "root");
    }
    EXPECT_EQ(key, key_of(array));
    ++checked;
  }
  EXPECT_GE(checked, 3);
}

TEST_F(RandomFixture, ArraysAreJaxArrays) {
  int checked = 0;
  for (const auto& [name, want] : arrays_) {
    const std::string kind = name.substr(name.rfind('/') + 1);
    if (kind == "key") continue;
    SCOPED_TRACE(name);
    const Key key = key_of(arrays_.at(name.substr(0, name.find('/')) + "/key"));
    HostArray got(want.dtype, want.shape);
    if (kind == "bits") {
      fill_bits(key, 0, got.as<uint32_t>());
      EXPECT_EQ(got.bytes, want.bytes);
    } else if (kind.starts_with("bernoulli_")) {
      fill_bernoulli(key, 0, got.as<uint8_t>(), std::stof(kind.substr(10)));
      EXPECT_EQ(got.bytes, want.bytes);
    } else {
      if (kind == "uniform") fill_uniform(key, 0, got.as<float>());
      if (kind == "normal") fill_normal(key, 0, got.as<float>());
      if (kind == "truncated_normal") fill_truncated_normal(key, 0, got.as<float>());
      const auto close = near_array(std::as_const(got).as<float>(), want.as<float>(),
                                    kind == "uniform" ? kExact : kNormal);
      EXPECT_TRUE(close);
    }
    ++checked;
  }
  EXPECT_GE(checked, 5);
}

TEST(Random, BlocksAgreeWithTheWholeArrayAndWithTheScalarForm) {
  const Key key = fold_in(key_from_seed(3), 4);
  // Crosses 2^32, where the high word of the counter steps, and chunks of the parallel loop.
  for (uint64_t begin : {uint64_t{0}, (uint64_t{1} << 32) - 1000}) {
    std::vector<uint32_t> whole(50001);
    fill_bits(key, begin, whole);
    for (size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(whole[i], random_bits(key, begin + i)) << i;
    std::vector<float> normal(whole.size()), part(777);
    fill_normal(key, begin, normal, 0.5f);
    for (size_t at : {size_t{0}, size_t{990}, size_t{16379}, size_t{49224}}) {
      fill_normal(key, begin + at, part, 0.5f);
      for (size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], normal[at + i]) << at + i;
    }
  }
}

TEST(Random, NormalsHaveTheRightMomentsAndInverseErf) {
  std::vector<float> x(1 << 20), u(x.size());
  const Key key = key_from_seed(1);
  fill_normal(key, 0, x);
  fill_uniform(key, 0, u, std::nextafter(-1.0f, 0.0f), 1.0f);
  double sum = 0, squares = 0, worst = 0, worst_in_tail = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum += x[i];
    squares += static_cast<double>(x[i]) * x[i];
    // erf(x / sqrt 2) must return to u: the error seen through erf, divided by its slope.
    const double back = std::erf(x[i] / std::sqrt(2.0)) - u[i];
    const double slope = std::sqrt(2 / M_PI) * std::exp(-0.5 * x[i] * x[i]);
    double& largest = std::abs(u[i]) < 0.99f ? worst : worst_in_tail;
    largest = std::max(largest, std::abs(back / slope));
  }
  const double n = static_cast<double>(x.size());
  EXPECT_LT(std::abs(sum / n), 4 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 4 * std::sqrt(2 / n));
  EXPECT_LT(worst, 2e-6);
  // JAX rounds x * x to float before log1p, and so do we: at |u| = 1 - 2^-23 that alone moves x by
  // 2e-5.
  EXPECT_LT(worst_in_tail, 4e-5);
}

TEST(Random, TruncatedNormalsStayInside) {
  std::vector<float> x(1 << 18);
  fill_truncated_normal(key_from_seed(2), 0, x, -1.0f, 0.5f, 3.0f);
  for (float value : x) ASSERT_TRUE(value > -3.0f && value < 1.5f) << value;
}

}  // namespace
}  // namespace quintet
