#include "data/evaluation/inference_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/evaluation/json_values.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {
namespace {

constexpr std::string_view kPretokenized = "_pretokenized";

bool is_included(std::string_view name, const InferenceLineOptions& options) {
  if (options.include_all_inputs) return true;
  const bool is_text = name.ends_with(kPretokenized);
  if (!options.input_fields_to_include) return is_text;
  const auto& fields = *options.input_fields_to_include;
  const auto named = [&](std::string_view field) {
    return std::find(fields.begin(), fields.end(), field) != fields.end();
  };
  return named(name) || (is_text && named(name.substr(0, name.size() - kPretokenized.size())));
}

/// One value, or a list of those of all decodes.
template <typename Of>
JsonText of_decodes(const Inference& inference, const Of& of) {
  if (!inference.all_decodes) return of(inference.decodes.front());
  JsonText list = JsonText::array();
  for (const Tokens& tokens : inference.decodes) list.push_back(of(tokens));
  return list;
}

JsonText ids_json(const Tokens& tokens) {
  return JsonText(Tokens(tokens.begin(), std::find(tokens.begin(), tokens.end(), 0)));
}

}  // namespace

std::string inference_line(const Example& example, const Inference& inference,
                           const Vocabulary& vocabulary, const InferenceLineOptions& options) {
  JsonText json = {{"inputs", JsonText::object()}};
  for (const auto& [name, value] : example.items())
    if (is_included(name, options)) json["inputs"][name] = value_json(value);
  if (!inference.decodes.empty()) {
    json["prediction"] = of_decodes(
        inference, [&](const Tokens& tokens) { return text_json(vocabulary.decode(tokens)); });
    if (options.output_ids) json["prediction_tokens"] = of_decodes(inference, ids_json);
  }
  if (inference.score) json["score"] = json_number(*inference.score);
  if (!inference.aux.empty()) json["aux"] = answer_json(inference.aux);
  return json.dump();
}

}  // namespace quintet::data
