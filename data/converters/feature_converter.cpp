#include "data/converters/feature_converter.h"

#include <algorithm>
#include <functional>

#include "data/examples/trim.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

Tokens non_padding(const Tokens& tokens) {
  Tokens weights(tokens.size());
  std::transform(tokens.begin(), tokens.end(), weights.begin(), [](int32_t id) { return id != 0; });
  return weights;
}

Tokens take(Example& example, std::string_view name) { return std::move(example.tokens(name)); }

/// Lengths by name, checked to be there.
const Length& length_of(const Lengths& lengths, std::string_view name) {
  const auto found = std::ranges::find(
      lengths, name, [](const auto& item) { return std::string_view(item.first); });
  QT_CHECK(found != lengths.end(),
           "task_feature_lengths: no length for feature '{}', which this model needs", name);
  return found->second;
}

void check_no_packing(const ConverterOptions& options, std::string_view who) {
  QT_CHECK(!options.pack, "{}: the task packs its examples itself; set pack = False", who);
}

/// Model features of one side of a model from one task feature, its segment ids and positions.
struct Side {
  std::string name;     // "encoder" or "decoder"
  std::string feature;  // "inputs" or "targets"
  bool is_decoder;      // its inputs are the targets shifted, and it has loss weights

  Lengths lengths(int64_t length, bool segments) const {
    Lengths all = {{name + "_input_tokens", length}};
    if (is_decoder) {
      all.emplace_back(name + "_target_tokens", length);
      all.emplace_back(name + "_loss_weights", length);
    }
    if (segments) {
      all.emplace_back(name + "_segment_ids", length);
      all.emplace_back(name + "_positions", length);
    }
    return all;
  }

  /// Moves the features from `in` to `out`.
  void move(Example& in, Example& out, bool segments, int32_t bos_id) const {
    Tokens tokens = take(in, feature);
    Tokens ids = segments ? take(in, feature + "_segment_ids") : Tokens{};
    if (is_decoder) {
      out.set(name + "_loss_weights", non_padding(tokens));
      out.set(name + "_input_tokens", make_autoregressive_inputs(tokens, ids, bos_id));
      out.set(name + "_target_tokens", std::move(tokens));
    } else {
      out.set(name + "_input_tokens", std::move(tokens));
    }
    if (!segments) return;
    out.set(name + "_segment_ids", std::move(ids));
    out.set(name + "_positions", take(in, feature + "_positions"));
  }
};

/// Trims, packs or pads task features and makes the sides' model features of them.
class SidesConverter : public FeatureConverter {
 public:
  SidesConverter(std::vector<Side> sides, std::vector<std::string> task_features,
                 ConverterOptions options, bool prepacked = false)
      : FeatureConverter(std::move(options)),
        sides_(std::move(sides)),
        task_features_(std::move(task_features)),
        segments_(pack() || prepacked) {
    QT_CHECK(!pack() || options_.passthrough_features.empty(),
             "feature converter: passthrough_features cannot be packed; set pack = False");
  }

  Lengths used_lengths(const Lengths& lengths) const override {
    Lengths used;
    for (const std::string& name : all_features())
      if (find_length(lengths, name)) used.emplace_back(name, length_of(lengths, name));
    return used;
  }

  Lengths model_feature_lengths(const Lengths& task) const override {
    check_names(task);
    Lengths inner = task;
    inner_lengths(inner);
    Lengths model;
    for (const Side& side : sides_)
      for (auto& item : side.lengths(length_of(inner, side.feature), segments_))
        model.push_back(std::move(item));
    add_lengths(inner, model);
    for (const PassThroughFeature& feature : options_.passthrough_features)
      model.emplace_back(feature.name, length_of(task, feature.name));
    return model;
  }

  StreamPtr convert(StreamPtr input, const Lengths& task) const override {
    model_feature_lengths(task);
    const auto self = std::static_pointer_cast<const SidesConverter>(shared_from_this());
    Lengths inner = task;
    inner_lengths(inner);
    input = map_stream(std::move(input), [self, task](Example& example) {
      self->check_example(example, task);
      self->join(example);
      return true;
    });
    input = pack() ? trim_and_pack(std::move(input), inner, packing())
                   : trim_and_pad(std::move(input), inner);
    return map_stream(std::move(input), [self](Example& example) {
      Example out;
      self->convert_example(example, out);
      for (const PassThroughFeature& feature : self->options_.passthrough_features)
        out.set(feature.name, std::move(*example.find(feature.name)));
      example.items() = std::move(out.items());
      return true;
    });
  }

 protected:
  /// Task features to those that are packed or padded, and their lengths likewise.
  virtual void join(Example&) const {}
  virtual void inner_lengths(Lengths&) const {}
  /// Lengths of features that convert_example adds to the sides'.
  virtual void add_lengths(const Lengths&, Lengths&) const {}
  virtual void convert_example(Example& in, Example& out) const {
    for (const Side& side : sides_) side.move(in, out, segments_, options_.bos_id);
  }

 private:
  std::vector<std::string> all_features() const {
    std::vector<std::string> names = task_features_;
    for (const PassThroughFeature& feature : options_.passthrough_features)
      names.push_back(feature.name);
    return names;
  }

  void check_names(const Lengths& task) const {
    const auto names = all_features();
    for (const std::string& name : names) length_of(task, name);
    for (const auto& [name, length] : task) {
      QT_CHECK(std::find(names.begin(), names.end(), name) != names.end(),
               "task_feature_lengths: '{}' is not a feature this model uses; it uses {}", name,
               fmt::join(names, ", "));
      QT_CHECK(length > 0, "task_feature_lengths: the length of '{}' is {}, expected at least 1",
               name, length);
    }
  }

  void check_example(const Example& example, const Lengths& task) const {
    for (const std::string& name : task_features_) example.tokens(name);
    for (const PassThroughFeature& feature : options_.passthrough_features)
      check_type(example, feature.name, feature.type, feature.rank);
    if (!options_.apply_length_check) return;
    for (const auto& [name, length] : task) {
      const int64_t size = data::length_of(example.at(name));
      QT_CHECK_AS(ExitCode::kData, size <= length.first,
                  "{}: feature '{}' has {} ids, expected at most {}; raise task_feature_lengths or "
                  "trim the feature",
                  example.where(), name, size, length.first);
    }
  }

  std::vector<Side> sides_;
  std::vector<std::string> task_features_;
  bool segments_;
};

const Side kEncoder = {"encoder", "inputs", false}, kDecoder = {"decoder", "targets", true};

/// Inputs, targets and perhaps suffixes as one sequence; the decoder sees all of the inputs at
/// once.
class PrefixLmConverter final : public SidesConverter {
 public:
  PrefixLmConverter(ConverterOptions options, bool has_suffixes)
      : SidesConverter({kDecoder},
                       has_suffixes ? std::vector<std::string>{"inputs", "targets", "suffixes"}
                                    : std::vector<std::string>{"inputs", "targets"},
                       std::move(options)),
        has_suffixes_(has_suffixes) {
    // seqio's PrefixSuffixLM never has a loss on its inputs, whatever it is told.
    if (has_suffixes) options_.loss_on_targets_only = true;
  }

 protected:
  void inner_lengths(Lengths& lengths) const override {
    int64_t total = length_of(lengths, "inputs") + length_of(lengths, "targets");
    if (has_suffixes_) total += length_of(lengths, "suffixes");
    std::erase_if(lengths, [](const auto& item) {
      return item.first == "inputs" || item.first == "targets" || item.first == "suffixes";
    });
    for (const char* name : {"targets", kWidth, kWidthAndOne}) lengths.emplace_back(name, total);
    if (has_suffixes_) lengths.emplace_back(kSuffix, total);
  }

  void add_lengths(const Lengths& inner, Lengths& model) const override {
    const int64_t total = length_of(inner, "targets");
    model.emplace_back("decoder_causal_attention", total);
    if (has_suffixes_) model.emplace_back(kSuffix, total);
  }

  void join(Example& example) const override {
    Tokens joined = take(example, "inputs"), rest = take(example, "targets");
    const auto width = static_cast<int32_t>(joined.size());
    const size_t targets = rest.size();
    const Tokens suffixes = has_suffixes_ ? take(example, "suffixes") : Tokens{};
    rest.insert(rest.end(), suffixes.begin(), suffixes.end());
    if (rest.empty()) rest.push_back(0);
    joined.insert(joined.end(), rest.begin(), rest.end());
    if (has_suffixes_) {
      // 2 where the suffix is; without one, where the targets are.
      const size_t before = joined.size() - rest.size() + (suffixes.empty() ? 0 : targets);
      Tokens marks(joined.size(), 2);
      std::fill_n(marks.begin(), before, 1);
      example.set(kSuffix, std::move(marks));
      example.erase("suffixes");
    }
    // Packing counts non-zero numbers, so a width of 0 travels as -1.
    example.set(kWidth, Tokens(joined.size(), width == 0 ? -1 : width));
    example.set(kWidthAndOne, Tokens(joined.size(), width + 1));
    example.set("targets", std::move(joined));
    example.erase("inputs");
  }

  void convert_example(Example& in, Example& out) const override {
    const Tokens width = take(in, kWidth), width_and_one = take(in, kWidthAndOne);
    SidesConverter::convert_example(in, out);
    Tokens& weights = out.tokens("decoder_loss_weights");
    Tokens visible(width.size());
    for (size_t i = 0; i < width.size(); ++i) {
      const int32_t position =
          pack() ? out.tokens("decoder_positions")[i] : static_cast<int32_t>(i);
      visible[i] = position < width_and_one[i];
      const bool is_input = position < std::max(width[i], 0);
      if (options_.loss_on_targets_only) weights[i] = is_input != (weights[i] != 0);
    }
    out.set("decoder_causal_attention", std::move(visible));
    if (!has_suffixes_) return;
    Tokens marks = take(in, kSuffix);
    for (int32_t& mark : marks) mark = mark == 2;
    out.set(kSuffix, std::move(marks));
  }

 private:
  static constexpr const char* kWidth = "inputs_width";
  static constexpr const char* kWidthAndOne = "inputs_width_add_pos";
  static constexpr const char* kSuffix = "target_suffix_weights";
  bool has_suffixes_;
};

/// A BERT-like encoder: the targets are the inputs before some of them were masked.
class EncoderConverter final : public SidesConverter {
 public:
  explicit EncoderConverter(ConverterOptions options)
      : SidesConverter({kEncoder}, {"inputs", "targets"}, std::move(options)) {
    QT_CHECK(options_.mask_id >= 0, "EncoderFeatureConverter: mask_id is required");
  }

 protected:
  void add_lengths(const Lengths& inner, Lengths& model) const override {
    const int64_t inputs = length_of(inner, "inputs"), targets = length_of(inner, "targets");
    QT_CHECK(inputs == targets,
             "EncoderFeatureConverter: task_feature_lengths of inputs ({}) and targets ({}) must "
             "be the same",
             inputs, targets);
    model.emplace_back("encoder_target_tokens", targets);
    model.emplace_back("encoder_loss_weights", targets);
  }
  void convert_example(Example& in, Example& out) const override {
    SidesConverter::convert_example(in, out);
    Tokens weights = out.tokens("encoder_input_tokens");
    for (int32_t& id : weights) id = id == options_.mask_id;
    out.set("encoder_loss_weights", std::move(weights));
    out.set("encoder_target_tokens", take(in, "targets"));
  }
};

/// Chooses by the features that have lengths.
class DecoderConverter final : public FeatureConverter {
 public:
  using FeatureConverter::FeatureConverter;
  Lengths model_feature_lengths(const Lengths& task) const override {
    return chosen(task)->model_feature_lengths(task);
  }
  Lengths used_lengths(const Lengths& lengths) const override {
    return chosen(lengths)->used_lengths(lengths);
  }
  StreamPtr convert(StreamPtr input, const Lengths& task) const override {
    return chosen(task)->convert(std::move(input), task);
  }

 private:
  FeatureConverterPtr chosen(const Lengths& task) const {
    const bool prefix = find_length(task, "inputs").has_value();
    const bool suffix = find_length(task, "suffixes").has_value();
    return make_feature_converter(suffix   ? "PrefixSuffixLMFeatureConverter"
                                  : prefix ? "PrefixLMFeatureConverter"
                                           : "LMFeatureConverter",
                                  options_);
  }
};

/// The task gives model features; those of a language model are kept.
class PrePackedLmConverter final : public FeatureConverter {
 public:
  PrePackedLmConverter(ConverterOptions options, bool has_prefix)
      : FeatureConverter(std::move(options)), has_prefix_(has_prefix) {
    check_no_packing(options_, "PrePackedLMFeatureConverter");
  }
  Lengths model_feature_lengths(const Lengths& task) const override {
    const int64_t length =
        length_of(task, "targets") + (has_prefix_ ? length_of(task, "inputs").first : 0);
    Lengths model = kDecoder.lengths(length, true);
    if (has_prefix_) model.emplace_back("decoder_causal_attention", length);
    return model;
  }
  Lengths used_lengths(const Lengths& lengths) const override { return lengths; }
  StreamPtr convert(StreamPtr input, const Lengths& task) const override {
    return map_stream(std::move(input), [model = model_feature_lengths(task)](Example& example) {
      Example out;
      for (const auto& [name, length] : model) {
        const auto size = static_cast<int64_t>(example.tokens(name).size());
        QT_CHECK_AS(ExitCode::kData, size == length, "feature '{}' has {} ids, expected {}", name,
                    size, length);
        out.set(name, take(example, name));
      }
      example.items() = std::move(out.items());
      return true;
    });
  }

 private:
  bool has_prefix_;
};

class PassThroughConverter final : public FeatureConverter {
 public:
  explicit PassThroughConverter(ConverterOptions options) : FeatureConverter(std::move(options)) {
    check_no_packing(options_, "PassThroughFeatureConverter");
  }
  Lengths model_feature_lengths(const Lengths& task) const override { return task; }
  Lengths used_lengths(const Lengths& lengths) const override { return lengths; }
  StreamPtr convert(StreamPtr input, const Lengths&) const override { return input; }
};

using Make = std::function<FeatureConverterPtr(ConverterOptions)>;

const std::vector<std::pair<std::string, Make>>& converters() {
  static const std::vector<std::pair<std::string, Make>> table = {
      {"EncDecFeatureConverter",
       [](ConverterOptions o) {
         return std::make_shared<SidesConverter>(std::vector{kEncoder, kDecoder},
                                                 std::vector<std::string>{"inputs", "targets"}, o);
       }},
      {"LMFeatureConverter",
       [](ConverterOptions o) {
         return std::make_shared<SidesConverter>(std::vector{kDecoder},
                                                 std::vector<std::string>{"targets"}, o);
       }},
      {"PrefixLMFeatureConverter",
       [](ConverterOptions o) { return std::make_shared<PrefixLmConverter>(o, false); }},
      {"PrefixSuffixLMFeatureConverter",
       [](ConverterOptions o) { return std::make_shared<PrefixLmConverter>(o, true); }},
      {"DecoderFeatureConverter",
       [](ConverterOptions o) { return std::make_shared<DecoderConverter>(o); }},
      {"EncoderFeatureConverter",
       [](ConverterOptions o) { return std::make_shared<EncoderConverter>(o); }},
      {"PrePackedEncDecFeatureConverter",
       [](ConverterOptions o) {
         check_no_packing(o, "PrePackedEncDecFeatureConverter");
         return std::make_shared<SidesConverter>(
             std::vector{kEncoder, kDecoder},
             std::vector<std::string>{"inputs", "targets", "inputs_positions", "inputs_segment_ids",
                                      "targets_positions", "targets_segment_ids"},
             o, true);
       }},
      {"PrePackedLMFeatureConverter",
       [](ConverterOptions o) { return std::make_shared<PrePackedLmConverter>(o, false); }},
      {"PrePackedPrefixLMFeatureConverter",
       [](ConverterOptions o) { return std::make_shared<PrePackedLmConverter>(o, true); }},
      {"PassThroughFeatureConverter",
       [](ConverterOptions o) { return std::make_shared<PassThroughConverter>(o); }},
  };
  return table;
}

}  // namespace

FeatureTypes FeatureConverter::types(const Features& task) const {
  FeatureTypes types;
  for (const auto& [name, feature] : task) types[name] = feature.type;
  for (const PassThroughFeature& feature : options_.passthrough_features)
    types[feature.name] = feature.type;
  return types;
}

FeatureConverterPtr make_feature_converter(std::string_view name, ConverterOptions options) {
  for (const auto& [known, make] : converters())
    if (known == name) return make(std::move(options));
  fail(ExitCode::kUsage, "feature converter '{}' is not known; the known ones are {}", name,
       fmt::join(feature_converter_names(), ", "));
}

std::vector<std::string> feature_converter_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : converters()) names.push_back(name);
  return names;
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
