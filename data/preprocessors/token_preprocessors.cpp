#include "data/preprocessors/token_preprocessors.h"

#include <algorithm>
#include <cmath>

#include "data/examples/random.h"
#include "data/examples/trim.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

int32_t eos_of(const Feature& feature, std::string_view name) {
  const auto eos = feature.vocabulary->eos_id();
  QT_CHECK(eos.has_value(),
           "feature '{}': its vocabulary {} has no EOS; set add_eos = False or choose another",
           name, feature.vocabulary->description());
  return *eos;
}

/// Calls change(tokens, name, feature) for each output feature that is present as ids.
template <typename Change>
StreamPtr for_each_feature(StreamPtr input, const PreprocessContext& context, Change change) {
  return map_stream(std::move(input),
                    [features = context.output_features, change](Example& example) {
                      for (const auto& [name, feature] : features)
                        if (Value* value = example.find(name))
                          if (auto* tokens = std::get_if<Tokens>(value))
                            change(*tokens, name, feature);
                      return true;
                    });
}

void keep_last(Tokens& tokens, int64_t count) {
  if (count < static_cast<int64_t>(tokens.size()))
    tokens.erase(tokens.begin(), tokens.end() - count);
}
void keep_first(Tokens& tokens, int64_t count) {
  if (count < static_cast<int64_t>(tokens.size())) tokens.resize(static_cast<size_t>(count));
}

/// Python's slice [:stop] with a negative stop counted from the end.
void slice_to(Tokens& tokens, int64_t stop) {
  const auto size = static_cast<int64_t>(tokens.size());
  keep_first(tokens, stop >= 0 ? stop : std::max<int64_t>(0, size + stop));
}

/// The features that a chunking preprocessor keeps.
struct ChunkKeys {
  std::vector<std::string> cut, pass;

  ChunkKeys(const std::string& key, const std::vector<std::string>& additional,
            const std::vector<std::string>& passthrough, std::string_view who)
      : cut{key}, pass(passthrough) {
    cut.insert(cut.end(), additional.begin(), additional.end());
    for (const std::string& name : cut)
      QT_CHECK(std::find(pass.begin(), pass.end(), name) == pass.end(),
               "{}: feature '{}' is both cut and passed through", who, name);
  }
  /// [start, end) of the cut features, the others whole; the example's place and key are set by the
  /// caller. Throws kData if a cut feature has another length than the first.
  Example slice(const Example& in, int64_t start, int64_t end) const {
    Example out;
    const size_t size = in.tokens(cut.front()).size();
    for (const std::string& name : cut) {
      const Tokens& tokens = in.tokens(name);
      QT_CHECK_AS(ExitCode::kData, tokens.size() == size,
                  "feature '{}' has {} ids, '{}' has {}: they must be equally long", name,
                  tokens.size(), cut.front(), size);
      out.set(name, Tokens(tokens.begin() + start, tokens.begin() + end));
    }
    for (const std::string& name : pass) out.set(name, in.at(name));
    return out;
  }
};

int64_t length_less_eos(const PreprocessContext& context, std::string_view feature,
                        std::string_view who) {
  return context.length(feature, who) - (context.feature(feature, who).add_eos ? 1 : 0);
}

}  // namespace

StreamPtr AppendEos::apply(StreamPtr input, const PreprocessContext& context) const {
  return for_each_feature(std::move(input), context,
                          [](Tokens& tokens, const std::string& name, const Feature& feature) {
                            if (feature.add_eos) tokens.push_back(eos_of(feature, name));
                          });
}

StreamPtr AppendEosAfterTrim::apply(StreamPtr input, const PreprocessContext& context) const {
  return for_each_feature(std::move(input), context,
                          [lengths = context.sequence_length.value_or(Lengths{})](
                              Tokens& tokens, const std::string& name, const Feature& feature) {
                            if (!feature.add_eos) return;
                            if (const auto length = find_length(lengths, name))
                              slice_to(tokens, *length - 1);
                            tokens.push_back(eos_of(feature, name));
                          });
}

StreamPtr TruncateInputsLeft::apply(StreamPtr input, const PreprocessContext& context) const {
  const auto length =
      context.sequence_length ? find_length(*context.sequence_length, "inputs") : std::nullopt;
  if (!length) return input;
  return map_stream(std::move(input), [length](Example& example) {
    keep_last(example.tokens("inputs"), *length);
    return true;
  });
}

StreamPtr TrimTokensAtFront::apply(StreamPtr input, const PreprocessContext& context) const {
  Lengths keep;
  if (keys_to_trim.empty()) {
    QT_CHECK(context.sequence_length.has_value(), "trim_tokens_at_front: needs sequence lengths");
    keep = *context.sequence_length;
  }
  for (const std::string& key : keys_to_trim)
    keep.emplace_back(key, context.length(key, "trim_tokens_at_front"));
  return map_stream(std::move(input), [keep](Example& example) {
    for (const auto& [name, length] : keep)
      if (example.has(name) && length != 1) keep_last(example.tokens(name), length - 1);
    return true;
  });
}

StreamPtr SelectRandomChunk::apply(StreamPtr input, const PreprocessContext& context) const {
  const ChunkKeys keys(feature_key, additional_feature_keys, passthrough_feature_keys,
                       "select_random_chunk");
  const int64_t longest =
      max_length ? *max_length : length_less_eos(context, feature_key, "select_random_chunk");
  QT_CHECK(longest > 0, "select_random_chunk: chunks of {} ids; max_length must be positive",
           longest);
  QT_CHECK(!min_length || (*min_length > 0 && *min_length < longest),
           "select_random_chunk: min_length {} must be positive and below max_length {}",
           min_length.value_or(0), longest);
  return map_stream(std::move(input), [*this, keys, longest](Example& example) {
    const auto count = static_cast<int64_t>(example.tokens(feature_key).size());
    if (count == 0) return false;
    Random random(take_key(example));
    const int64_t length = min_length ? *min_length + random.below(longest - *min_length) : longest;
    int64_t start, end;
    if (uniform_random_start) {
      start = 1 - length + random.below(count + length - 1);
      end = std::min(start + length, count);
      start = std::max<int64_t>(start, 0);
    } else {
      start = length * random.below((count + length - 1) / length);
      end = std::min(start + length, count);
    }
    if (start == 0 && end == count && keys.cut.size() == 1 && keys.pass.empty() &&
        example.items().size() == 1)
      return true;  // the whole of its only feature: nothing to copy
    example.items() = std::move(keys.slice(example, start, end).items());
    return true;
  });
}

StreamPtr ReduceConcatTokens::apply(StreamPtr input, const PreprocessContext&) const {
  return group_stream(std::move(input), batch_size,
                      [key = feature_key](std::vector<Example>& in, std::vector<Example>& out) {
                        Tokens joined;
                        size_t total = 0;
                        for (const Example& example : in) total += example.tokens(key).size();
                        joined.reserve(total);
                        for (const Example& example : in)
                          std::copy_if(example.tokens(key).begin(), example.tokens(key).end(),
                                       std::back_inserter(joined),
                                       [](int32_t id) { return id != 0; });
                        out.emplace_back().set(key, std::move(joined));
                      });
}

StreamPtr SplitTokens::apply(StreamPtr input, const PreprocessContext&) const {
  const ChunkKeys keys(feature_key, additional_feature_keys, passthrough_feature_keys,
                       "split_tokens");
  QT_CHECK(max_tokens_per_segment > 0, "split_tokens: max_tokens_per_segment {} must be positive",
           max_tokens_per_segment);
  QT_CHECK(!min_tokens_per_segment || *min_tokens_per_segment > 0,
           "split_tokens: min_tokens_per_segment must be positive");
  return flat_map_stream(std::move(input), [*this, keys](Example&& in, std::vector<Example>& out) {
    const auto count = static_cast<int64_t>(in.tokens(feature_key).size());
    int64_t length = max_tokens_per_segment;
    if (min_tokens_per_segment) {
      const double low = std::log(static_cast<double>(*min_tokens_per_segment));
      const double high = std::log(static_cast<double>(max_tokens_per_segment));
      Random random(take_key(in));
      length = static_cast<int64_t>(std::exp(low + (high - low) * random.uniform()));
    }
    out.reserve(static_cast<size_t>((count + length - 1) / length));
    for (int64_t start = 0; start < count; start += length)
      out.push_back(keys.slice(in, start, std::min(start + length, count)));
  });
}

StreamPtr SplitTokensToLength::apply(StreamPtr input, const PreprocessContext& context) const {
  SplitTokens split;
  split.min_tokens_per_segment = min_tokens_per_segment;
  split.max_tokens_per_segment =
      length_less_eos(context, length_of, "split_tokens_to_" + length_of + "_length");
  split.feature_key = feature_key;
  split.additional_feature_keys = additional_feature_keys;
  split.passthrough_feature_keys = passthrough_feature_keys;
  return split.apply(std::move(input), context);
}

namespace {

/// Cuts the concatenation of all examples into pieces. Its place is the example that the next piece
/// begins in, and how many of its ids are used up.
class FixedLengthStream final : public Stream {
 public:
  FixedLengthStream(StreamPtr input, std::string key, int64_t length)
      : input_(std::move(input)), key_(std::move(key)), length_(static_cast<size_t>(length)) {
    input_->save(before_);
  }
  bool next(Example& out) override {
    Tokens piece;
    bool first = true;
    while (piece.size() < length_) {
      if (used_ == example_size() && !pull()) break;
      if (used_ == example_size()) continue;
      if (first) {
        out = Example();
        out.key = split_at(example_.key, used_);
        out.provenance = example_.provenance;
        out.index = example_.index;
        first = false;
      }
      const Tokens& tokens = example_.tokens(key_);
      const size_t count = std::min(length_ - piece.size(), tokens.size() - used_);
      piece.insert(piece.end(), tokens.begin() + static_cast<int64_t>(used_),
                   tokens.begin() + static_cast<int64_t>(used_ + count));
      used_ += count;
    }
    if (piece.empty()) return false;
    out.clear();
    out.set(key_, std::move(piece));
    return true;
  }
  void save(Position& position) const override {
    if (used_ == example_size())
      input_->save(position);
    else
      position.insert(position.end(), before_.begin(), before_.end());
    position.push_back(used_ == example_size() ? 0 : static_cast<int64_t>(used_));
  }
  void restore(PositionReader& position) override {
    input_->restore(position);
    const int64_t used = position.take();
    example_.clear();
    used_ = 0;
    if (used == 0) return;
    QT_CHECK_AS(ExitCode::kData, pull() && used > 0 && static_cast<size_t>(used) < example_size(),
                "data position: the data or its preprocessing has changed");
    used_ = static_cast<size_t>(used);
  }

 private:
  size_t example_size() const { return example_.has(key_) ? example_.tokens(key_).size() : 0; }
  bool pull() {
    before_.clear();
    input_->save(before_);
    used_ = 0;
    if (input_->next(example_)) return true;
    example_.clear();
    return false;
  }

  StreamPtr input_;
  std::string key_;
  size_t length_;
  Example example_;
  size_t used_ = 0;
  Position before_;
};

}  // namespace

StreamPtr ConcatenateAndSplitToFixedLength::apply(StreamPtr input,
                                                  const PreprocessContext& context) const {
  const int64_t length =
      length_less_eos(context, feature_key, "concatenate_and_split_to_fixed_length");
  QT_CHECK(length > 0, "concatenate_and_split_to_fixed_length: pieces of {} ids", length);
  return std::make_unique<FixedLengthStream>(std::move(input), feature_key, length);
}

StreamPtr FullLm::apply(StreamPtr input, const PreprocessContext& context) const {
  SelectRandomChunk select;
  select.max_length = 65536;
  SplitTokens split;
  split.max_tokens_per_segment = context.length("targets", "full_lm");
  input = select.apply(std::move(input), context);
  input = AppendEos{}.apply(std::move(input), context);
  input = ReduceConcatTokens{}.apply(std::move(input), context);
  return split.apply(std::move(input), context);
}

StreamPtr trim_output_features(StreamPtr input, const PreprocessContext& context) {
  if (!context.sequence_length) return input;
  Lengths longest;
  for (const auto& [name, length] : *context.sequence_length)
    if (find_feature(context.output_features, name)) longest.emplace_back(name, length);
  return map_stream(std::move(input), [longest](Example& example) {
    for (const auto& [name, length] : longest)
      if (Value* value = example.find(name)) trim(*value, length);
    return true;
  });
}

}  // namespace quintet::data
