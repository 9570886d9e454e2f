#include "models/decoding/quantization_loss.h"

#include <algorithm>
#include <cmath>

#include "models/decoding/cpu/transformer_decoder.h"

namespace quintet::decoding {
namespace {

using Ids = std::vector<int32_t>;

/// Sums of squares: {of the weights, of what quantizing changes}.
std::pair<double, double> squares(const PackedMatrix& exact, const PackedMatrix& quantized) {
  double all = 0, changed = 0;
  std::vector<float> w(static_cast<size_t>(exact.k())), q(w.size());
  for (int64_t c = 0; c < exact.n(); ++c) {
    exact.column(c, w.data());
    quantized.column(c, q.data());
    for (size_t i = 0; i < w.size(); ++i) {
      const auto x = static_cast<double>(w[i]), error = static_cast<double>(q[i]) - x;
      all += x * x;
      changed += error * error;
    }
  }
  return {all, changed};
}

/// What both networks read: the inputs, encoded or as a prefix after the start token, and targets.
struct Texts {
  std::span<const Ids> inputs, targets;
  bool bidirectional = false;
};

/// Both networks read the same targets, side by side.
class Comparison {
 public:
  Comparison(const PackedNetwork& exact, const PackedNetwork& other, const Texts& texts)
      : exact_(exact), other_(other), targets_(texts.targets) {
    const size_t start = exact.spec().decoder_only() ? 1 : 0;
    size_t longest = 1, steps = 1;
    for (const Ids& ids : texts.inputs) longest = std::max(longest, start + ids.size());
    for (const Ids& ids : targets_) steps = std::max(steps, ids.size());
    const auto items = std::ssize(texts.inputs), length = static_cast<int64_t>(longest);
    std::vector<int32_t> tokens(texts.inputs.size() * longest, 0), prefix;
    for (size_t i = 0; i < texts.inputs.size(); ++i) {
      const Ids& ids = texts.inputs[i];
      std::copy(ids.begin(), ids.end(),
                tokens.begin() + static_cast<std::ptrdiff_t>(i * longest + start));
      prefix.push_back(static_cast<int32_t>(start + ids.size()));
      // The first target is predicted from the last token of the prefix, read once more.
      firsts_.push_back(start == 0 || ids.empty() ? 0 : ids.back());
      first_positions_.push_back(start == 0 ? 0 : static_cast<int32_t>(ids.size()));
    }
    const CacheOptions cache{.num_decodes = 1,
                             .max_length = static_cast<int64_t>(start * longest + steps)};
    for (TransformerDecoder* decoder : {&exact_, &other_})
      if (start > 0)
        decoder->begin_prefix(tokens, items, length, prefix, texts.bidirectional, cache);
      else
        decoder->begin(tokens, items, length, cache);
    for (size_t t = 0; t < steps; ++t) step(t);
  }

  double divergence() const { return divergence_ / std::max(1.0, tokens_); }
  double changed() const { return changed_ / std::max(1.0, tokens_); }

 private:
  void step(size_t t) {
    std::vector<int32_t> rows, tokens, positions;
    for (size_t i = 0; i < targets_.size(); ++i)
      if (t < targets_[i].size()) {
        rows.push_back(static_cast<int32_t>(i));
        tokens.push_back(t == 0 ? firsts_[i] : targets_[i][t - 1]);
        positions.push_back(first_positions_[i] + static_cast<int32_t>(t));
      }
    const StepInput input{.rows = rows, .tokens = tokens, .positions = positions, .sources = {}};
    const auto p = exact_.step(input), q = other_.step(input);
    const size_t vocab = p.size() / std::max<size_t>(1, rows.size());
    for (size_t r = 0; r < rows.size(); ++r)
      compare(p.subspan(r * vocab, vocab), q.subspan(r * vocab, vocab));
  }

  void compare(std::span<const float> p, std::span<const float> q) {
    const RowSummary a = summarize(p), b = summarize(q);
    double sum = 0;
    for (size_t v = 0; v < p.size(); ++v) {
      const auto log_p = static_cast<double>(a.log_softmax(p[v]));
      sum += std::exp(log_p) * (log_p - static_cast<double>(b.log_softmax(q[v])));
    }
    divergence_ += std::max(0.0, sum);
    changed_ += a.argmax != b.argmax;
    ++tokens_;
  }

  TransformerDecoder exact_, other_;
  const std::span<const Ids> targets_;
  Ids firsts_, first_positions_;
  double divergence_ = 0, changed_ = 0, tokens_ = 0;
};

}  // namespace

std::vector<QuantizationLoss> quantization_losses(const PackedNetwork& exact,
                                                  const PackedNetwork& quantized,
                                                  std::span<const Ids> inputs,
                                                  std::span<const Ids> targets,
                                                  bool bidirectional) {
  QT_ASSERT(!inputs.empty() && inputs.size() == targets.size());
  std::vector<QuantizationLoss> losses;
  double all = 0, changed = 0;
  int64_t bytes = 0;
  const auto add = [&](const std::string& part, const PackedNetwork& with, double w, double q,
                       int64_t size) {
    const Comparison comparison(exact, with, {inputs, targets, bidirectional});
    losses.push_back({.part = part,
                      .bytes = size,
                      .weight_error = std::sqrt(q / w),
                      .divergence = comparison.divergence(),
                      .changed = comparison.changed()});
  };
  for (const std::string& part : exact.parts()) {
    const auto from = exact.matrices(part), to = quantized.matrices(part);
    double w = 0, q = 0;
    int64_t size = 0;
    for (size_t m = 0; m < from.size(); ++m) {
      const auto [of_weights, of_changes] = squares(from[m], to[m]);
      w += of_weights;
      q += of_changes;
      size += to[m].bytes();
    }
    add(part, exact.with_part(quantized, part), w, q, size);
    all += w;
    changed += q;
    bytes += size;
  }
  add("all", quantized, all, changed, bytes);
  return losses;
}

}  // namespace quintet::decoding
