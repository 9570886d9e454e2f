#include "apps/generate/generation_flags.h"

#include "apps/flags/command_line.h"
#include "apps/flags/help_format.h"
#include "data/vocabularies/text_stream.h"

namespace quintet {

void GenerationFlags::add_to(CLI::App& app) {
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 30);
  decode.add_to(app);
  const HelpGroup group(app, kAnswersGroup);
  app.add_option("--seed", seed, "seed of the samples; input i uses seed + i");
  app.add_option("--num_decodes", num_decodes, "answers per input, best first; default: 1")
      ->check(positive);
  app.add_option("--stop", stops, "end an answer before this text; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--min_length", min_length, "at least so many tokens per answer")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  app.add_option("--prefix", prefix, "text that every answer begins with");
  app.add_option("--bad_word", bad_words, "text that no answer may contain; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--repetition_penalty", repetition_penalty,
                 "above 1: tokens that the answer already contains become less likely")
      ->check(CLI::Range(1e-6, 1e6));
  app.add_option("--no_repeat_ngram_size", no_repeat_ngram_size,
                 "no sequence of so many tokens occurs twice in an answer")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  app.add_option("--length_penalty", length_penalty,
                 "beams: scores are divided by the length to this power; default: as the model's "
                 "directory says, else 1");
  app.add_option("--early_stopping", early_stopping,
                 "beams: end with the first --beams answers (yes), when better ones are unlikely "
                 "(no) or impossible (never)")
      ->check(CLI::IsMember({"no", "yes", "never"}));
  app.add_option(
         "--logprobs", logprobs,
         "with --format=json: each token's log probability and those of so many alternatives; "
         "default: none")
      ->check(CLI::Range(0, 1000));
}

void GenerationFlags::check() {
  decode.check("generate");
  drafts.check("generate");
  QT_CHECK(!length_penalty || decode.beams, "quintet generate: --length_penalty goes with --beams");
  if (!num_decodes || decode.samples()) return;
  if (!decode.beams) decode.beams = num_decodes;
  QT_CHECK(*num_decodes <= *decode.beams, "quintet generate: --num_decodes={} exceeds --beams={}",
           *num_decodes, *decode.beams);
}

bool GenerationFlags::makes_requests() const {
  return decode.samples() || !stops.empty() || !bad_words.empty() || !prefix.empty() ||
         min_length > 0 || no_repeat_ngram_size > 0 || logprobs || repetition_penalty != 1 ||
         length_penalty || early_stopping != "no";
}

void GenerationFlags::take(const GenerationDefaults& defaults) {
  if (!decode.beams && !decode.samples()) {
    if (defaults.num_beams.value_or(1) > 1)
      decode.beams = defaults.num_beams;
    else if (defaults.temperature) {
      decode.temperature = defaults.temperature;
      if (defaults.top_k.value_or(0) > 0) decode.top_k = defaults.top_k;
      decode.top_p = defaults.top_p;
    }
  }
  rules = defaults.rules;
  renormalize_logits = defaults.renormalize_logits;
  if (decode.beams && !length_penalty) length_penalty = defaults.length_penalty;
  if (repetition_penalty == 1) repetition_penalty = defaults.repetition_penalty.value_or(1);
  if (no_repeat_ngram_size == 0) no_repeat_ngram_size = defaults.no_repeat_ngram_size.value_or(0);
  if (min_length == 0) min_length = defaults.min_new_tokens.value_or(0);
  if (early_stopping == "no") early_stopping = defaults.early_stopping.value_or("no");
}

decoding::DecodingRequest GenerationFlags::request(const data::VocabularyPtr& targets,
                                                   const std::vector<int32_t>& eos_ids,
                                                   int64_t max_length, int64_t index) const {
  using decoding::EarlyStopping;
  QT_CHECK(targets != nullptr || (prefix.empty() && bad_words.empty() && stops.empty()),
           "quintet generate: --prefix, --bad_word and --stop are texts, and the model has no "
           "vocabulary");
  decoding::DecodingRequest request;
  request.rules = rules;
  request.rules.eos_ids = eos_ids;
  request.rules.max_new_tokens = max_length;
  request.rules.repetition_penalty = static_cast<float>(repetition_penalty);
  request.rules.no_repeat_ngram_size = no_repeat_ngram_size;
  request.rules.min_new_tokens = min_length;
  if (!prefix.empty()) request.rules.prefix = targets->encode(prefix);
  for (const std::string& word : bad_words) {
    request.rules.bad_words.push_back(targets->encode(word));
    QT_CHECK(!request.rules.bad_words.back().empty(), "--bad_word='{}' has no tokens", word);
  }
  if (decode.samples())
    request.sampling = {.temperature = static_cast<float>(decode.temperature.value_or(1.0)),
                        .top_k = decode.top_k.value_or(0),
                        .top_p = static_cast<float>(decode.top_p.value_or(1.0)),
                        .seed = static_cast<uint64_t>(seed) + static_cast<uint64_t>(index)};
  request.sampling.alternatives = logprobs.value_or(0);
  request.num_beams = decode.beams.value_or(1);
  request.num_return_sequences = num_decodes.value_or(1);
  request.length_penalty = static_cast<float>(length_penalty.value_or(1.0));
  request.renormalize_logits = renormalize_logits;
  request.early_stopping = early_stopping == "yes"     ? EarlyStopping::yes
                           : early_stopping == "never" ? EarlyStopping::never
                                                       : EarlyStopping::no;
  if (!stops.empty()) request.stops = data::stop_check(targets, stops);
  return request;
}

}  // namespace quintet
