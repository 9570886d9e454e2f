#include "data/feature_converter.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

Tokens non_padding(const Tokens& tokens) {
  Tokens weights(tokens.size());
  std::transform(tokens.begin(), tokens.end(), weights.begin(), [](int32_t id) { return id != 0; });
  return weights;
}

Tokens take(Example& example, std::string_view name) { return std::move(example.tokens(name)); }

/// The decoder's features of a language model, from the task's targets, which are moved out of
/// `in`.
void set_decoder_features(Example& in, Example& out, const ConverterOptions& options) {
  Tokens targets = take(in, "targets");
  Tokens segments = options.pack ? take(in, "targets_segment_ids") : Tokens{};
  out.set("decoder_input_tokens", make_autoregressive_inputs(targets, segments, options.bos_id));
  out.set("decoder_loss_weights", non_padding(targets));
  out.set("decoder_target_tokens", std::move(targets));
  if (!options.pack) return;
  out.set("decoder_segment_ids", std::move(segments));
  out.set("decoder_positions", take(in, "targets_positions"));
}

class EncDec final : public FeatureConverter {
 public:
  using FeatureConverter::FeatureConverter;
  Lengths model_feature_lengths(const Lengths& task) const override {
    check_names(task);
    const int64_t encoder = *find_length(task, "inputs"), decoder = *find_length(task, "targets");
    Lengths lengths = {{"encoder_input_tokens", encoder},
                       {"decoder_target_tokens", decoder},
                       {"decoder_input_tokens", decoder},
                       {"decoder_loss_weights", decoder}};
    if (pack())
      lengths.insert(lengths.end(), {{"encoder_segment_ids", encoder},
                                     {"decoder_segment_ids", decoder},
                                     {"encoder_positions", encoder},
                                     {"decoder_positions", decoder}});
    return lengths;
  }

 protected:
  std::vector<std::string> task_features() const override { return {"inputs", "targets"}; }
  void convert_example(Example& in) const override {
    Example out;
    set_decoder_features(in, out, options_);
    out.set("encoder_input_tokens", take(in, "inputs"));
    if (pack()) {
      out.set("encoder_segment_ids", take(in, "inputs_segment_ids"));
      out.set("encoder_positions", take(in, "inputs_positions"));
    }
    in.items() = std::move(out.items());
  }
};

class Lm : public FeatureConverter {
 public:
  using FeatureConverter::FeatureConverter;
  Lengths model_feature_lengths(const Lengths& task) const override {
    check_names(task);
    return lengths_of(*find_length(task, "targets"));
  }

 protected:
  std::vector<std::string> task_features() const override { return {"targets"}; }
  Lengths lengths_of(int64_t length) const {
    Lengths lengths = {{"decoder_target_tokens", length},
                       {"decoder_input_tokens", length},
                       {"decoder_loss_weights", length}};
    if (pack())
      lengths.insert(lengths.end(),
                     {{"decoder_segment_ids", length}, {"decoder_positions", length}});
    return lengths;
  }
  void convert_example(Example& in) const override {
    Example out;
    set_decoder_features(in, out, options_);
    in.items() = std::move(out.items());
  }
};

/// Inputs and targets as one sequence; the decoder sees all of the inputs at once.
class PrefixLanguageModel final : public Lm {
 public:
  using Lm::Lm;
  Lengths model_feature_lengths(const Lengths& task) const override {
    check_names(task);
    const int64_t length = joined_length(task);
    Lengths lengths = lengths_of(length);
    lengths.emplace_back("decoder_causal_attention", length);
    return lengths;
  }

 protected:
  std::vector<std::string> task_features() const override { return {"inputs", "targets"}; }

  StreamPtr prepare(StreamPtr input, Lengths& lengths) const override {
    const int64_t length = joined_length(lengths);
    lengths = {{"targets", length}, {kWidth, length}, {kWidthAndOne, length}};
    return map_stream(std::move(input), [](Example& example) {
      Tokens joined = take(example, "inputs");
      const auto width = static_cast<int32_t>(joined.size());
      const Tokens& targets = example.tokens("targets");
      joined.insert(joined.end(), targets.begin(), targets.end());
      if (targets.empty()) joined.push_back(0);
      // Packing counts non-zero numbers, so a width of 0 travels as -1.
      Tokens widths(joined.size(), width == 0 ? -1 : width);
      Tokens widths_and_one(joined.size(), width + 1);
      example.clear();
      example.set("targets", std::move(joined));
      example.set(kWidth, std::move(widths));
      example.set(kWidthAndOne, std::move(widths_and_one));
      return true;
    });
  }

  void convert_example(Example& in) const override {
    const Tokens width = take(in, kWidth), width_and_one = take(in, kWidthAndOne);
    Tokens positions;
    if (pack()) positions = in.tokens("targets_positions");
    Lm::convert_example(in);
    Tokens& weights = in.tokens("decoder_loss_weights");
    Tokens visible(width.size());
    for (size_t i = 0; i < width.size(); ++i) {
      const int32_t position = pack() ? positions[i] : static_cast<int32_t>(i);
      visible[i] = position < width_and_one[i];
      const bool is_input = position < std::max(width[i], 0);
      if (options_.loss_on_targets_only) weights[i] = is_input != (weights[i] != 0);
    }
    in.set("decoder_causal_attention", std::move(visible));
  }

 private:
  static constexpr const char* kWidth = "inputs_width";
  static constexpr const char* kWidthAndOne = "inputs_width_add_pos";
  static int64_t joined_length(const Lengths& task) {
    return *find_length(task, "inputs") + *find_length(task, "targets");
  }
};

}  // namespace

void FeatureConverter::check_names(const Lengths& task) const {
  const auto names = task_features();
  for (const std::string& name : names)
    QT_CHECK(find_length(task, name).has_value(),
             "task_feature_lengths: no length for feature '{}', which this model needs", name);
  for (const auto& [name, length] : task) {
    QT_CHECK(std::find(names.begin(), names.end(), name) != names.end(),
             "task_feature_lengths: '{}' is not a feature this model uses; it uses {}", name,
             fmt::join(names, ", "));
    QT_CHECK(length > 0, "task_feature_lengths: the length of '{}' is {}, expected at least 1",
             name, length);
  }
}

Lengths FeatureConverter::used_lengths(const Lengths& lengths) const {
  Lengths used;
  for (const std::string& name : task_features())
    if (const auto length = find_length(lengths, name)) used.emplace_back(name, *length);
  return used;
}

StreamPtr FeatureConverter::prepare(StreamPtr input, Lengths&) const { return input; }

StreamPtr FeatureConverter::convert(StreamPtr input, const Lengths& task_feature_lengths) const {
  check_names(task_feature_lengths);
  input = map_stream(std::move(input), [task_feature_lengths](Example& example) {
    for (const auto& [name, length] : task_feature_lengths) {
      const auto size = static_cast<int64_t>(example.tokens(name).size());
      QT_CHECK_AS(ExitCode::kData, size <= length,
                  "{}: feature '{}' has {} ids, expected at most {}; raise task_feature_lengths or "
                  "trim the feature",
                  example.where(), name, size, length);
    }
    return true;
  });
  Lengths lengths = task_feature_lengths;
  input = prepare(std::move(input), lengths);
  input = pack() ? trim_and_pack(std::move(input), lengths, packing())
                 : trim_and_pad(std::move(input), lengths);
  return map_stream(std::move(input), [converter = shared_from_this()](Example& example) {
    converter->convert_example(example);
    return true;
  });
}

FeatureConverterPtr make_feature_converter(std::string_view name, ConverterOptions options) {
  if (name == "EncDecFeatureConverter") return std::make_shared<EncDec>(options);
  if (name == "LMFeatureConverter") return std::make_shared<Lm>(options);
  if (name == "PrefixLMFeatureConverter") return std::make_shared<PrefixLanguageModel>(options);
  fail(ExitCode::kUsage,
       "feature converter '{}' is not known; the known ones are EncDecFeatureConverter, "
       "LMFeatureConverter, PrefixLMFeatureConverter",
       name);
}

FeatureConverterPtr decoder_feature_converter(const Lengths& task_feature_lengths,
                                              ConverterOptions options) {
  return make_feature_converter(find_length(task_feature_lengths, "inputs")
                                    ? "PrefixLMFeatureConverter"
                                    : "LMFeatureConverter",
                                options);
}

Tokens make_autoregressive_inputs(std::span<const int32_t> targets,
                                  std::span<const int32_t> segment_ids, int32_t bos_id) {
  Tokens inputs(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) inputs[i] = i == 0 ? bos_id : targets[i - 1];
  for (size_t i = 0; i < segment_ids.size(); ++i)
    if (segment_ids[i] != (i == 0 ? 0 : segment_ids[i - 1])) inputs[i] = bos_id;
  return inputs;
}

}  // namespace quintet::data
