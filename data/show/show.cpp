#include "data/show/show.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/evaluation/json_values.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// Line ends and tabs would tear the listing apart.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else
      out += c;
  }
  return out + "\"";
}

std::string ids_text(const Tokens& ids, int64_t most) {
  const auto count = std::min(most, static_cast<int64_t>(ids.size()));
  std::string text = fmt::format("{}", fmt::join(ids.begin(), ids.begin() + count, " "));
  if (count < static_cast<int64_t>(ids.size())) text += fmt::format(" .. ({} ids)", ids.size());
  return "[" + text + "]";
}

void print_example(const Example& example, const Features& features, int64_t most, std::FILE* out) {
  for (const auto& [name, value] : example.items()) {
    const auto* text = std::get_if<std::string>(&value);
    const auto* ids = std::get_if<Tokens>(&value);
    if (text != nullptr)
      fmt::print(out, "    {}: {}\n", name, quoted(*text));
    else if (ids != nullptr)
      fmt::print(out, "    {}: {}\n", name, ids_text(*ids, most));
    else
      fmt::print(out, "    {}: {}\n", name, to_string(value));
    const Feature* feature = find_feature(features, name);
    if (ids != nullptr && feature != nullptr)
      fmt::print(out, "      = {}\n", quoted(feature->vocabulary->decode(*ids)));
  }
}

void print_json(JsonText object, const Example& example, std::FILE* out) {
  for (const auto& [name, value] : example.items()) object["features"][name] = value_json(value);
  fmt::print(out, "{}\n", object.dump(-1, ' ', false, JsonText::error_handler_t::replace));
}

/// The ids of segment `segment` (all ids if there are no segments).
Tokens segment_of(const Tokens& ids, const Tokens* segments, int32_t segment) {
  Tokens out;
  for (size_t i = 0; i < ids.size(); ++i)
    if (segments == nullptr ? ids[i] != 0 : (*segments)[i] == segment) out.push_back(ids[i]);
  return out;
}

void print_row(const Example& row, const Features& features, int64_t most, std::FILE* out) {
  struct Part {
    const char *tokens, *segments, *feature;
  };
  constexpr Part kParts[] = {
      {"encoder_input_tokens", "encoder_segment_ids", "inputs"},
      {"decoder_target_tokens", "decoder_segment_ids", "targets"},
  };
  for (const Part& part : kParts) {
    if (!row.has(part.tokens)) continue;
    const Tokens& ids = row.tokens(part.tokens);
    const Tokens* segments = row.has(part.segments) ? &row.tokens(part.segments) : nullptr;
    const int32_t count = segments == nullptr || segments->empty()
                              ? 1
                              : *std::max_element(segments->begin(), segments->end());
    const auto filled = static_cast<int64_t>(ids.size()) - std::count(ids.begin(), ids.end(), 0);
    fmt::print(out, "    {}: {} of {} filled, {} sequence{}\n", part.tokens, filled, ids.size(),
               count, count == 1 ? "" : "s");
    const Feature* feature = find_feature(features, part.feature);
    constexpr int32_t kMostSequences = 8;
    for (int32_t segment = 1; segment <= count && feature != nullptr; ++segment) {
      if (segment > kMostSequences) {
        fmt::print(out, "      .. ({} more)\n", count - kMostSequences);
        break;
      }
      const Tokens one = segment_of(ids, segments, segment);
      fmt::print(out, "      {}: {} = {}\n", segment, ids_text(one, most),
                 quoted(feature->vocabulary->decode(one)));
    }
  }
}

/// Tokens and rows of packed model features.
struct Packed {
  int64_t rows = 0, tokens = 0, capacity = 0;
  double efficiency() const {
    return capacity == 0 ? 0 : 100 * static_cast<double>(tokens) / static_cast<double>(capacity);
  }
};

Packed count(Stream& rows) {
  Packed packed;
  Example row;
  for (; rows.next(row); ++packed.rows)
    for (const char* name : {"encoder_input_tokens", "decoder_target_tokens"})
      if (row.has(name)) {
        const Tokens& ids = row.tokens(name);
        packed.capacity += static_cast<int64_t>(ids.size());
        packed.tokens += static_cast<int64_t>(ids.size()) - std::count(ids.begin(), ids.end(), 0);
      }
  return packed;
}

/// How full both ways of packing make the rows of the first examples.
void print_efficiency(const std::vector<Example>& examples, const Lengths& lengths,
                      const char* converter, bool json, std::FILE* out) {
  if (!json) fmt::print(out, "\npacking {} examples:\n", examples.size());
  for (const auto& [packing, name] :
       {std::pair{Packing::greedy, "greedy"},
        std::pair{Packing::best_fit, "best fit (use_custom_packing_ops = True)"}}) {
    const auto rows = make_feature_converter(converter, {.pack = true, .packing = packing})
                          ->convert(stream_of(examples), lengths);
    const Packed packed = count(*rows);
    if (json)
      print_json({{"stage", "packing"},
                  {"packing", packing == Packing::greedy ? "greedy" : "best_fit"},
                  {"examples", examples.size()},
                  {"rows", packed.rows},
                  {"tokens", packed.tokens},
                  {"positions", packed.capacity}},
                 {}, out);
    else
      fmt::print(out, "  {}: {} rows, {:.1f} % of {} positions hold tokens\n", name, packed.rows,
                 packed.efficiency(), packed.capacity);
  }
}

/// The parts of a listing, each as text or as an object.
struct Printer {
  const Provider& provider;
  const ShowOptions& options;
  std::FILE* out;

  void head() const {
    JsonText object = {{"task", provider.name()}, {"splits", provider.splits()}};
    if (!options.json)
      fmt::print(out, "{}: splits {}\n", provider.name(), fmt::join(provider.splits(), ", "));
    for (const auto& [name, feature] : provider.output_features()) {
      const std::string text =
          feature.vocabulary->description() + (feature.add_eos ? ", with EOS" : "");
      object["vocabularies"][name] = text;
      if (!options.json) fmt::print(out, "  {}: {}\n", name, text);
    }
    if (options.json) print_json(object, {}, out);
  }
  void title(const std::string& text) const {
    if (!options.json) fmt::print(out, "\n{}:\n", text);
  }
  void example(const char* stage, const std::string& task, int64_t number,
               const Example& example) const {
    const bool has_place = !example.where().empty() && std::string_view(stage) == "raw";
    if (options.json) {
      JsonText object = {{"stage", stage}, {"task", task}, {"number", number}};
      if (has_place) object["where"] = example.where();
      return print_json(object, example, out);
    }
    fmt::print(out, "  {}{}\n", number, has_place ? fmt::format(" ({})", example.where()) : "");
    print_example(example, provider.output_features(), options.most_ids, out);
  }
  void row(const char* stage, int64_t number, const Example& row) const {
    if (options.json)
      return print_json({{"stage", stage}, {"task", provider.name()}, {"number", number}}, row,
                        out);
    fmt::print(out, "  row {}\n", number);
    print_row(row, provider.output_features(), options.most_ids, out);
  }
};

}  // namespace

Lengths default_lengths(const Features& features) {
  constexpr int64_t kInputs = 512, kTargets = 114;  // t5's span corruption at 15 % noise
  Lengths lengths;
  for (const auto& [name, feature] : features)
    lengths.emplace_back(name, name == "targets" && features.size() > 1 ? kTargets : kInputs);
  return lengths;
}

void show(const Provider& provider, const ShowOptions& options, std::FILE* out) {
  const Features& features = provider.output_features();
  const Lengths lengths = options.lengths.empty() ? default_lengths(features) : options.lengths;
  const StreamOptions stream_options{
      .split = options.split,
      .sequence_length = lengths,
      .shuffle = options.shuffle,
      .seed = options.seed,
      .epochs = provider.has_end(options.split) ? std::optional<int64_t>(1) : std::nullopt,
      .use_cached = options.use_cached,
      .cache_dirs = options.cache_dirs};
  const Printer print{provider, options, out};
  print.head();
  Example example;
  for (const Task* task : provider.tasks()) {
    const auto splits = task->splits();
    if (std::find(splits.begin(), splits.end(), options.split) == splits.end()) continue;
    print.title(fmt::format("{} raw, split {}", task->name(), options.split));
    const StreamPtr raw = task->raw_stream(stream_options);
    for (int64_t i = 0; i < options.num && raw->next(example); ++i)
      print.example("raw", task->name(), i + 1, example);
  }
  print.title(provider.name() + " preprocessed");
  const StreamPtr stream = provider.stream(stream_options);
  for (int64_t i = 0; i < options.num && stream->next(example); ++i)
    print.example("preprocessed", provider.name(), i + 1, example);

  // Some tasks make the model's features themselves.
  if (find_feature(features, "decoder_target_tokens") != nullptr) return;
  const char* converter_name =
      find_feature(features, "inputs") != nullptr ? "EncDecFeatureConverter" : "LMFeatureConverter";
  const auto converter = make_feature_converter(
      converter_name,
      {.pack = options.pack, .packing = options.best_fit ? Packing::best_fit : Packing::greedy});
  const char* stage = options.pack ? "packed" : "padded";
  print.title(fmt::format("{} {}", provider.name(), stage));
  const StreamPtr rows = converter->convert(provider.stream(stream_options), lengths);
  for (int64_t i = 0; i < options.num && rows->next(example); ++i) print.row(stage, i + 1, example);
  if (!options.pack) return;
  std::vector<Example> examples;
  const StreamPtr again = provider.stream(stream_options);
  while (static_cast<int64_t>(examples.size()) < options.packed_examples && again->next(example))
    examples.push_back(std::move(example));
  print_efficiency(examples, lengths, converter_name, options.json, out);
}

std::vector<std::pair<std::string, std::optional<std::vector<std::string>>>> splits_by_task(
    const TaskRegistry& tasks) {
  std::vector<std::pair<std::string, std::optional<std::vector<std::string>>>> all;
  for (const std::string& name : tasks.names()) {
    all.emplace_back(name, std::nullopt);
    try {
      all.back().second = tasks.get(name)->splits();
    } catch (const Error&) {  // not here
    }
  }
  return all;
}

}  // namespace quintet::data
