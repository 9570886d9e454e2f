#include "data/preprocessors/glue_preprocessors.h"

#include <algorithm>
#include <cmath>

#include "data/preprocessors/strings.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

std::string label_text(const Example& example, const std::vector<std::string>& names) {
  const int64_t label = example.integer("label");
  if (label == -1) return "<unk>";
  QT_CHECK_AS(ExitCode::kData, label >= 0 && label < static_cast<int64_t>(names.size()),
              "label {}, expected -1 or one of {} labels ({})", label, names.size(),
              fmt::join(names, ", "));
  return names[static_cast<size_t>(label)];
}

}  // namespace

StreamPtr Glue::apply(StreamPtr input, const PreprocessContext&) const {
  static const RE2 line_break("<br>"), bold("<(/)?b>");
  return map_stream(std::move(input), [*this](Example& example) {
    std::vector<std::string> keys = feature_names;
    if (keys.empty()) {
      for (const auto& [name, value] : example.items())
        if (name != "label" && name != "idx") keys.push_back(name);
      std::sort(keys.begin(), keys.end());
    }
    std::string joined = benchmark_name;
    for (const std::string& key : keys) joined += " " + key + ": " + example.text(key);
    Example out;
    if (benchmark_name == "multirc") {
      joined = replace_all(replace_all(std::move(joined), line_break, " "), bold, "");
      for (const char* part : {"idx/paragraph", "idx/question", "idx/answer"})
        out.set(part, example.at(part));
    } else if (id_key) {
      out.set("idx", example.at(*id_key));
    }
    out.set("inputs", std::move(joined));
    out.set("targets", label_text(example, label_names));
    example.items() = std::move(out.items());
    return true;
  });
}

StreamPtr Stsb::apply(StreamPtr input, const PreprocessContext&) const {
  return map_stream(std::move(input), [](Example& example) {
    const auto* score = std::get_if<double>(&example.at("label"));
    QT_CHECK_AS(ExitCode::kData, score != nullptr, "stsb: label is {}, expected a number",
                to_string(example.at("label")));
    // In float32 and to the even number, as TensorFlow rounds.
    const float rounded = std::nearbyint(static_cast<float>(*score) * 5.0F) / 5.0F;
    Example out;
    out.set("inputs", "stsb sentence1: " + example.text("sentence1") +
                          " sentence2: " + example.text("sentence2"));
    out.set("targets", fmt::format("{:.1f}", rounded));
    out.set("idx", example.at("idx"));
    example.items() = std::move(out.items());
    return true;
  });
}

StreamPtr Record::apply(StreamPtr input, const PreprocessContext&) const {
  static const RE2 after_mark(R"((\.|\?|\!|\"|\')\n@highlight\n)"), highlight(R"(\n@highlight\n)");
  return flat_map_stream(std::move(input), [](Example&& in, std::vector<Example>& out) {
    const std::string passage =
        replace_all(replace_all(in.text("passage"), after_mark, R"(\1 )"), highlight, ". ");
    const std::vector<std::string>& answers = in.texts("answers");
    Example one;
    one.set("idx/passage", in.at("idx/passage"));
    one.set("idx/query", in.at("idx/query"));
    one.set("inputs", "record query: " + in.text("query") + " entities: " +
                          join(in.texts("entities"), ", ") + " passage: " + passage);
    one.set("targets", std::string("<unk>"));
    one.set("answers", answers);
    if (answers.empty()) out.push_back(one);
    for (const std::string& answer : answers) {
      one.set("targets", answer);
      out.push_back(one);
    }
  });
}

}  // namespace quintet::data
