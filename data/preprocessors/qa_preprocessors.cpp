#include "data/preprocessors/qa_preprocessors.h"

#include <algorithm>

#include "data/examples/random.h"
#include "data/preprocessors/strings.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

std::string question_and_context(const std::string& question, const std::string& context) {
  return collapse_spaces("question: " + question + " context: " + context);
}

/// "start: 4 end: 5" of the answer among the context's words; empty if it is not there. The last
/// place is not looked at, as in T5.
std::string span_of(const std::string& context, const std::string& answer) {
  static const RE2 not_word(R"(\W)");
  const auto words = split(replace_all(context, not_word, " "), " ");
  const auto wanted = split(replace_all(answer, not_word, " "), " ");
  for (size_t i = 0; i + wanted.size() < words.size(); ++i)
    if (std::equal(wanted.begin(), wanted.end(), words.begin() + static_cast<std::ptrdiff_t>(i)))
      return fmt::format("start: {} end: {}", i, i + wanted.size() - 1);
  return "";
}

}  // namespace

StreamPtr Squad::apply(StreamPtr input, const PreprocessContext&) const {
  return map_stream(std::move(input), [with_context = include_context](Example& example) {
    std::vector<std::string> answers = example.texts("answers/text");
    QT_CHECK_AS(ExitCode::kData, !answers.empty(), "squad: a question without an answer");
    for (std::string& answer : answers) answer = pad_punctuation(std::move(answer));
    const std::string question = pad_punctuation(example.text("question"));
    const std::string context = pad_punctuation(example.text("context"));
    Example out;
    out.set("inputs", with_context ? question_and_context(question, context)
                                   : collapse_spaces("squad trivia question: " + question));
    out.set("targets", answers.front());
    out.set("id", example.at("id"));
    out.set("context", context);
    out.set("question", question);
    out.set("answers", std::move(answers));
    example.items() = std::move(out.items());
    return true;
  });
}

StreamPtr SquadSpanSpaceTokenized::apply(StreamPtr input, const PreprocessContext& context) const {
  return map_stream(Squad{}.apply(std::move(input), context), [](Example& example) {
    std::string span = span_of(example.text("context"), example.text("targets"));
    if (span.empty()) return false;
    example.set("targets", std::move(span));
    return true;
  });
}

StreamPtr TriviaQa::apply(StreamPtr input, const PreprocessContext&) const {
  return flat_map_stream(std::move(input), [](Example&& in, std::vector<Example>& out) {
    std::vector<std::string> contexts;
    for (const char* name : {"entity_pages/wiki_context", "search_results/search_context"})
      if (in.has(name)) {
        const auto& some = in.texts(name);
        contexts.insert(contexts.end(), some.begin(), some.end());
      }
    const std::string question = pad_punctuation(in.text("question"));
    struct Answer {
      std::string text;
      std::unique_ptr<RE2> pattern;  // the answer is taken for one, as in T5
    };
    std::vector<Answer> answers;
    for (const std::string& alias : in.texts("answer/normalized_aliases")) {
      std::string text = pad_punctuation(alias);
      auto pattern = std::make_unique<RE2>(lower_ascii(".*" + text + ".*"));
      check_pattern(*pattern);
      answers.push_back({std::move(text), std::move(pattern)});
    }
    for (const std::string& raw : contexts) {
      const std::string context = pad_punctuation(raw), lower = lower_ascii(context);
      for (const Answer& answer : answers) {
        if (!RE2::FullMatch(lower, *answer.pattern)) continue;
        Example& one = out.emplace_back();
        one.set("inputs", question_and_context(question, context));
        one.set("targets", answer.text);
      }
    }
  });
}

StreamPtr TriviaQaTruncateInputs::apply(StreamPtr input, const PreprocessContext& context) const {
  const int64_t length = context.length("inputs", "trivia_qa_truncate_inputs");
  return map_stream(std::move(input), [length](Example& example) {
    Tokens inputs = std::move(example.tokens("inputs"));
    Tokens targets = std::move(example.tokens("targets"));
    const auto size = static_cast<int64_t>(inputs.size());
    if (size > length) {
      const auto found = std::search(inputs.begin(), inputs.end(), targets.begin(), targets.end());
      if (found == inputs.end()) return false;
      const int64_t answer = found - inputs.begin();
      const int64_t first =
          std::max<int64_t>(0, answer - (length - static_cast<int64_t>(targets.size())));
      const int64_t last = std::min(answer, size - length);
      // An answer longer than the inputs leaves no choice.
      const int64_t start =
          first + Random(take_key(example)).below(std::max<int64_t>(1, last - first + 1));
      inputs = Tokens(inputs.begin() + start, inputs.begin() + std::min(start + length, size));
    }
    if (inputs.empty()) return false;
    example.clear();
    example.set("inputs", std::move(inputs));
    example.set("targets", std::move(targets));
    return true;
  });
}

}  // namespace quintet::data
