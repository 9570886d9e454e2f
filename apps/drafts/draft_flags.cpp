#include "apps/drafts/draft_flags.h"

#include "apps/flags/command_line.h"
#include "apps/flags/help_format.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

constexpr int64_t kAssistantTokens = 5;

}  // namespace

void DraftFlags::add_to(CLI::App& app) {
  const HelpGroup group(app, "Speculative decoding");
  const auto count = CLI::Range(int64_t{1}, int64_t{64});
  app.add_option(
      "--assistant_model", assistant_model,
      "a smaller model of the same vocabulary that guesses the next tokens, of which a step "
      "checks several at once: the same answers, sooner");
  app.add_option(
         "--num_assistant_tokens", assistant_tokens,
         fmt::format("guesses per step with --assistant_model; default: {}", kAssistantTokens))
      ->check(count);
  app.add_option("--prompt_lookup_num_tokens", lookup_tokens,
                 "guesses per step from what followed the last tokens where they stand in the "
                 "input or earlier in the answer, without another model; default: none")
      ->check(count);
}

void DraftFlags::check(const std::string& verb) const {
  QT_CHECK(assistant_model.empty() || !lookup_tokens,
           "quintet {}: --assistant_model and --prompt_lookup_num_tokens both guess; give one",
           verb);
  QT_CHECK(!assistant_model.empty() || !assistant_tokens,
           "quintet {}: --num_assistant_tokens is how many tokens --assistant_model guesses; "
           "give that, too, or leave this out",
           verb);
}

int64_t DraftFlags::tokens() const {
  return assistant_model.empty() ? lookup_tokens.value_or(0)
                                 : assistant_tokens.value_or(kAssistantTokens);
}

}  // namespace quintet
