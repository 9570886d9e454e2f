#include "apps/flags/decode_flags.h"

#include "apps/flags/command_line.h"
#include "apps/flags/help_format.h"
#include "runtime/base/check.h"

namespace quintet {

namespace {

const auto kPositiveCount = CLI::Range(int64_t{1}, int64_t{1} << 30);

}  // namespace

void DecodeFlags::add_search_to(CLI::App& app, const std::string& otherwise) {
  const HelpGroup group(app, kAnswersGroup);
  app.add_option("--beams,--num_beams", beams,
                 "number of beams of a beam search; default: " + otherwise)
      ->check(kPositiveCount);
  app.add_option("--temperature", temperature,
                 "sample at this temperature; 0 is greedy; default: no sampling")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--top_k,--topk", top_k, "sample from the k most likely tokens; default: all")
      ->check(kPositiveCount);
  app.add_option(
         "--top_p,--topp", top_p,
         "sample from the most likely tokens whose probabilities reach this sum; default: all")
      ->check(CLI::Range(0.0, 1.0));
}

void DecodeFlags::add_to(CLI::App& app) {
  add_search_to(app, "as the run's configuration says");
  const HelpGroup group(app, kAnswersGroup);
  app.add_option("--max_tokens,--max_decode_len", max_tokens,
                 "at most so many tokens per answer; default: as the run's targets may have")
      ->check(kPositiveCount);
}

void DecodeFlags::check(const std::string& verb) const {
  QT_CHECK(!(samples() && beams),
           "quintet {}: --beams searches, --temperature, --top_k and --top_p sample: give one kind",
           verb);
  QT_CHECK(!(top_k && top_p), "quintet {}: give --top_k or --top_p, not both", verb);
}

std::string DecodeFlags::text() const {
  std::string text;
  const auto add = [&](const char* name, const auto& value) {
    if (value) text += fmt::format(" {}={}", name, *value);
  };
  add("beams", beams);
  add("temperature", temperature);
  add("top_k", top_k);
  add("top_p", top_p);
  if (max_tokens > 0) text += fmt::format(" max_tokens={}", max_tokens);
  return text;
}

}  // namespace quintet
