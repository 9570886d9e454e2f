#pragma once
// Attention and its gradient as plain loops in double, scores and all: what the kernels must agree
// with. Operands as in kernels/attention/attention.h. Queries without an allowed key weigh all keys
// alike, and their gradient goes through the softmax as if the scores were the same, as T5X's does.

#include <cmath>

#include "kernels/attention/attention.h"
#include "kernels/attention/buckets.h"
#include "runtime/base/threefry.h"
#include "tests/ops/harness.h"

namespace quintet::testing {

class AttentionOracle {
 public:
  AttentionOracle(const Arrays& in, const Attrs& attrs)
      : in_(in),
        attrs_(attrs),
        all_heads_(attrs.get<int64_t>("h")),
        depth_(in[0].global.back() / all_heads_) {
    batch = in[0].size(0), queries = in[0].size(1), keys = in[1].size(1);
    heads = in[0].size(2) / depth_;
  }
  int64_t batch, heads, queries, keys;

  void forward(Array& out, Array& lse) const {
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < queries; ++i) {
          double log_sum = 0;
          const std::vector<double> p = weights(b, h, i, &log_sum);
          for (int64_t c = 0; c < depth_; ++c) {
            double sum = 0;
            for (int64_t j = 0; j < keys; ++j)
              sum += p[static_cast<size_t>(j)] * keep(b, h, j) * in_[2][at(b, keys, j, h, c)];
            out[at(b, queries, i, h, c)] = sum;
          }
          if (!lse.absent) lse[(b * heads + h) * queries + i] = log_sum;
        }
  }

  void gradient(const Array& dout, Array& dq, Array& dk, Array& dv, Array& dtable) const {
    for (Array* a : {&dq, &dk, &dv, &dtable}) std::fill(a->values.begin(), a->values.end(), 0.0);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < queries; ++i) {
          const std::vector<double> p = weights(b, h, i, nullptr);
          std::vector<double> dp(p.size());
          double delta = 0;
          for (int64_t j = 0; j < keys; ++j) {
            const auto at_j = static_cast<size_t>(j);
            for (int64_t c = 0; c < depth_; ++c) {
              const double g = keep(b, h, j) * dout[at(b, queries, i, h, c)];
              dp[at_j] += g * in_[2][at(b, keys, j, h, c)];
              dv[at(b, keys, j, h, c)] += g * p[at_j];
            }
            delta += p[at_j] * dp[at_j];
          }
          for (int64_t j = 0; j < keys; ++j) {
            const double ds = p[static_cast<size_t>(j)] * (dp[static_cast<size_t>(j)] - delta);
            for (int64_t c = 0; c < depth_; ++c) {
              dq[at(b, queries, i, h, c)] += scale() * ds * in_[1][at(b, keys, j, h, c)];
              dk[at(b, keys, j, h, c)] += scale() * ds * in_[0][at(b, queries, i, h, c)];
            }
            if (!dtable.absent) dtable[h * dtable.depth() + bucket(i, j)] += ds;
          }
        }
  }

  bool allowed(int64_t b, int64_t i, int64_t j) const {
    if (!in_[4].absent) {
      const double segment = in_[4][b * queries + i];
      if (segment == 0 || segment != in_[5][b * keys + j]) return false;
    }
    if (!attrs_.get_or<bool>("causal", false) || key_position(j) <= query_position(i)) return true;
    if (in_[6].absent) return false;
    for (int64_t own = 0; own < keys; ++own)
      if (key_position(own) == query_position(i))
        return in_[6][b * keys + own] != 0 && in_[6][b * keys + j] != 0;
    return false;
  }

 private:
  int64_t at(int64_t b, int64_t length, int64_t row, int64_t h, int64_t c) const {
    return ((b * length + row) * heads + h) * depth_ + c;
  }
  double scale() const { return attrs_.get_or<double>("scale", 1.0); }
  int64_t query_position(int64_t i) const {
    return in_[0].origin[1] + attrs_.get_or<int64_t>("q_offset", 0) + i;
  }
  int64_t key_position(int64_t j) const { return in_[1].origin[1] + j; }
  int64_t bucket(int64_t i, int64_t j) const {
    const BucketRule rule{attrs_.get_or<bool>("bidirectional", true), in_[3].depth(),
                          attrs_.get<int64_t>("max_distance")};
    return rule.bucket(key_position(j) - query_position(i));
  }
  double keep(int64_t b, int64_t h, int64_t j) const {
    const double rate = attrs_.get_or<double>("rate", 0.0);
    if (rate == 0) return 1;
    const Key key{static_cast<uint32_t>(attrs_.get<int64_t>("key0")),
                  static_cast<uint32_t>(attrs_.get<int64_t>("key1"))};
    const int64_t head = in_[0].origin[2] / depth_ + h;
    const int64_t element = ((in_[0].origin[0] + b) * all_heads_ + head) * keys + j;
    const float drawn = random_uniform(random_bits(key, static_cast<uint64_t>(element)));
    return drawn < static_cast<float>(1 - rate) ? 1 / (1 - rate) : 0;
  }
  /// Attention weights of a query; sets *lse.
  std::vector<double> weights(int64_t b, int64_t h, int64_t i, double* lse) const {
    std::vector<double> p(static_cast<size_t>(keys));
    double total = 0;
    for (int64_t j = 0; j < keys; ++j) {
      if (!allowed(b, i, j)) continue;
      double score = 0;
      for (int64_t c = 0; c < depth_; ++c)
        score += scale() * in_[0][at(b, queries, i, h, c)] * in_[1][at(b, keys, j, h, c)];
      if (!in_[3].absent) score += in_[3][h * in_[3].depth() + bucket(i, j)];
      total += p[static_cast<size_t>(j)] = std::exp(score);
    }
    for (double& x : p) x = total > 0 ? x / total : 1.0 / static_cast<double>(keys);
    if (lse != nullptr) *lse = total > 0 ? std::log(total) : static_cast<double>(kMaskedScore);
    return p;
  }

  const Arrays& in_;
  const Attrs& attrs_;
  int64_t all_heads_, depth_;
};

}  // namespace quintet::testing
