#pragma once
// The n-grams of a sequence, all orders at once: one sort of its suffixes puts those of every order
// in order.
//
//   const NGrams a(std::move(tokens), 4), b(...);
//   int64_t common = NGrams::matches(a.counts(2), b.counts(2));      // clipped counts of bigrams

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace quintet::data::metrics {

class NGrams {
 public:
  struct Count {
    std::span<const int32_t> ngram;  // in the NGrams' own tokens
    int64_t count;
  };
  using Counts = std::vector<Count>;  // in order

  NGrams(std::vector<int32_t> tokens, size_t max_order) : tokens_(std::move(tokens)) {
    begins_.resize(tokens_.size());
    std::iota(begins_.begin(), begins_.end(), size_t{0});
    std::sort(begins_.begin(), begins_.end(),
              [&](size_t a, size_t b) { return less(from(a, max_order), from(b, max_order)); });
  }
  NGrams(NGrams&&) = default;

  size_t size() const { return tokens_.size(); }
  int64_t total(size_t order) const {
    return tokens_.size() < order ? 0 : static_cast<int64_t>(tokens_.size() - order + 1);
  }
  /// Distinct n-grams of an order up to max_order.
  Counts counts(size_t order) const {
    Counts counts;
    for (const size_t begin : begins_) {
      const auto ngram = from(begin, order);
      if (ngram.size() < order) continue;
      if (counts.empty() || less(counts.back().ngram, ngram)) counts.push_back({ngram, 0});
      ++counts.back().count;
    }
    return counts;
  }

  /// Sum over n-grams of the smaller count.
  static int64_t matches(const Counts& a, const Counts& b) {
    int64_t sum = 0;
    merge(a, b, [&](const Count* in_a, const Count* in_b) {
      if (in_a != nullptr && in_b != nullptr) sum += std::min(in_a->count, in_b->count);
    });
    return sum;
  }
  /// Each n-gram of either with its larger count.
  static Counts largest(const Counts& a, const Counts& b) {
    Counts all;
    merge(a, b, [&](const Count* in_a, const Count* in_b) {
      if (in_a == nullptr || (in_b != nullptr && in_b->count > in_a->count))
        all.push_back(*in_b);
      else
        all.push_back(*in_a);
    });
    return all;
  }

 private:
  using Span = std::span<const int32_t>;
  Span from(size_t begin, size_t length) const {
    return Span(tokens_).subspan(begin, std::min(length, tokens_.size() - begin));
  }
  static bool less(Span a, Span b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
  template <typename Visit>
  static void merge(const Counts& a, const Counts& b, Visit visit) {
    auto i = a.begin();
    auto j = b.begin();
    while (i != a.end() || j != b.end()) {
      const bool in_a = i != a.end() && (j == b.end() || !less(j->ngram, i->ngram));
      const bool in_b = j != b.end() && (i == a.end() || !less(i->ngram, j->ngram));
      visit(in_a ? &*i : nullptr, in_b ? &*j : nullptr);
      i += in_a;
      j += in_b;
    }
  }

  std::vector<int32_t> tokens_;
  std::vector<size_t> begins_;
};

}  // namespace quintet::data::metrics
