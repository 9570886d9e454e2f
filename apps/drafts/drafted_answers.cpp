#include "apps/drafts/drafted_answers.h"

#include "apps/model/predictor.h"

namespace quintet {
namespace {

constexpr int64_t kInputTokens = 16384;  // most of a decoder alone
constexpr int64_t kUsualTokens = 2048;   // of an input, by which a GPU's memory is taken

serving::EngineOptions options_for(const TextModel& model, const DraftedAnswers::Limits& limits,
                                   const DraftFlags& flags) {
  const ModelSpec& spec = model.configured().model->spec();
  // The CPU takes pages as tokens are written.
  const int64_t memory = Device::current().is_cpu()
                             ? int64_t{1} << 40
                             : (flags.assistant_model.empty() ? 1 : 2) * limits.batch *
                                   (limits.max_length + kUsualTokens) *
                                   cached_token_bytes(spec, limits.cache_type);
  return {.memory_bytes = memory,
          .max_rows = limits.batch * (1 + flags.tokens()),
          .max_length = limits.max_length + kInputTokens,
          .max_waiting = limits.batch,
          .cache_type = limits.cache_type,
          .draft_tokens = flags.tokens(),
          .bidirectional_prefix = spec.inputs_bidirectional_attention};
}

}  // namespace

DraftedAnswers::DraftedAnswers(const DraftFlags& flags, const TextModel& model,
                               std::optional<WeightType> type, const Limits& limits,
                               SharedMemoryGroup* ranks)
    : decoder_only_((check_answers(*model.configured().model), model.decoder_only())),
      vocab_size_(model.configured().model->vocab_size()),
      options_(options_for(model, limits, flags)),
      drafting_(drafting_of(flags, model, type, options_)),
      served_(served_model(model, type, options_, ranks)),
      engine_(std::move(served_.network), options_, std::move(drafting_.drafter)) {}

decoding::Answers DraftedAnswers::answer(std::span<const std::vector<int32_t>> inputs,
                                         std::vector<decoding::DecodingRequest> requests) {
  decoding::Answers answers(inputs.size());
  std::exception_ptr error;
  try {
    for (size_t i = 0; i < inputs.size(); ++i) {
      decoding::DecodingRequest& request = requests[i];
      QT_CHECK(
          decoding::rows_of(request) == 1,
          "--assistant_model and --prompt_lookup_num_tokens guess the tokens of one answer at a "
          "time: give --beams=1, and no --num_decodes");
      serving::Job job{.inputs = inputs[i]};
      if (decoder_only_) job.inputs.insert(job.inputs.begin(), 0);
      set_search(job, std::move(request), vocab_size_, decoder_only_);
      job.done = [&, i](const serving::Outcome& outcome) {
        if (outcome.error == nullptr)
          answers[i] = outcome.search->take_results();
        else if (error == nullptr)
          error = outcome.error;
      };
      engine_.submit(std::move(job));
    }
  } catch (...) {
    if (error == nullptr) error = std::current_exception();
  }
  engine_.run_until_idle();
  try {
    if (error != nullptr) std::rethrow_exception(error);
  } catch (const serving::Refused& refused) {
    throw Error(
        ExitCode::kUsage,
        fmt::format("{}; with --assistant_model or --prompt_lookup_num_tokens caches have room for "
                    "inputs of "
                    "{} tokens: leave these out, or give a smaller --batch_size",
                    refused.what(), Device::current().is_cpu() ? kInputTokens : kUsualTokens));
  }
  for (const auto& answer : answers) tokens_ += std::ssize(answer.front().tokens);
  return answers;
}

std::string DraftedAnswers::text() const {
  const serving::EngineState state = engine_.state();
  return fmt::format("{} tokens in {} steps; {} of {} guesses were right", tokens_, state.steps,
                     state.accepted_drafts, state.draft_tokens);
}

}  // namespace quintet
