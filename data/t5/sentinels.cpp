#include "data/t5/sentinels.h"

#include <algorithm>
#include <numeric>

#include "data/preprocessors/noise.h"
#include "data/preprocessors/strings.h"
#include "data/preprocessors/token_preprocessors.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// The last ids of the vocabulary, downwards.
Tokens sentinels_of(const Vocabulary& vocabulary, int32_t count) {
  Tokens ids(static_cast<size_t>(count));
  std::generate(ids.begin(), ids.end(),
                [next = sentinel_id(vocabulary)]() mutable { return next--; });
  return ids;
}

}  // namespace

StreamPtr AddSentinels::apply(StreamPtr input, const PreprocessContext& context) const {
  const Tokens last =
      sentinels_of(*context.feature("inputs", "add_sentinels").vocabulary, num_sentinels);
  const Tokens first =
      sentinels_of(*context.feature("targets", "add_sentinels").vocabulary, num_sentinels);
  return map_stream(std::move(input), [last, first](Example& example) {
    Tokens &inputs = example.tokens("inputs"), &targets = example.tokens("targets");
    inputs.insert(inputs.end(), last.begin(), last.end());
    targets.insert(targets.begin(), first.begin(), first.end());
    return true;
  });
}

StreamPtr AppendEosAfterTrimAndPreserve::apply(StreamPtr input,
                                               const PreprocessContext& context) const {
  return map_stream(std::move(input), [*this, context](Example& example) {
    for (const auto& [name, feature] : context.output_features) {
      if (!feature.add_eos || !example.has(name)) continue;
      Tokens& tokens = example.tokens(name);
      const auto length =
          context.sequence_length ? find_length(*context.sequence_length, name) : std::nullopt;
      const auto size = static_cast<int64_t>(tokens.size());
      if (length && size + 1 > *length) {
        const int64_t keep = std::min(preserve_final_n_tokens_when_trimming, *length - 1);
        tokens.erase(tokens.begin() + (*length - 1 - keep), tokens.end() - keep);
      }
      const auto eos = feature.vocabulary->eos_id();
      QT_CHECK(eos.has_value(), "feature '{}': its vocabulary {} has no EOS", name,
               feature.vocabulary->description());
      tokens.push_back(*eos);
    }
    return true;
  });
}

std::string sentinel_task_name(const std::string& task_name, int32_t num_sentinels) {
  const std::string mark = fmt::format("_{}_sentinel", num_sentinels);
  for (const char* suffix : {"_train", "_dev", "_test", "_eval", "."}) {
    const size_t at = task_name.find(suffix);
    if (at != std::string::npos) return task_name.substr(0, at) + mark + task_name.substr(at);
  }
  return task_name + mark;
}

void add_sentinels(Task::Config& task, int32_t num_sentinels) {
  auto add = std::make_shared<AddSentinels>();
  add->num_sentinels = num_sentinels;
  auto end = std::make_shared<AppendEosAfterTrimAndPreserve>();
  end->preserve_final_n_tokens_when_trimming = num_sentinels;
  auto& steps = task.preprocessors;
  steps.push_back(std::move(add));
  if (steps.size() > 1 &&
      dynamic_cast<const AppendEosAfterTrim*>(steps[steps.size() - 2].get()) != nullptr) {
    steps[steps.size() - 2] = steps.back();
    steps.back() = std::move(end);
  }
  const Feature* targets = find_feature(task.output_features, "targets");
  QT_CHECK(targets != nullptr, "task '{}': sentinels need a feature 'targets'", task.name);
  const std::string written =
      targets->vocabulary->decode(sentinels_of(*targets->vocabulary, num_sentinels));
  task.postprocess_fn = [written, inner = task.postprocess_fn](
                            const Answer& decoded, const Example& example, bool is_target) {
    const std::string& text = decoded.text();
    const Answer answer =
        text.starts_with(written) ? Answer(strip(text.substr(written.size()))) : decoded;
    return inner ? inner(answer, example, is_target) : answer;
  };
}

}  // namespace quintet::data
