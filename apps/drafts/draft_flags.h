#pragma once
// Speculative decoding in verbs that answer: where draft tokens come from (models/serving/drafter.h). Under the names of
// transformers' generate.
//
//   DraftFlags drafts;
//   drafts.add_to(cli.app());
//   if (!cli.parse(args)) return 0;
//   drafts.check("serve");

#include <cstdint>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace quintet {

struct DraftFlags {
  std::string assistant_model;  // empty: none
  std::optional<int64_t> assistant_tokens, lookup_tokens;

  void add_to(CLI::App& app);
  /// Throws a usage error for flags that exclude one another.
  void check(const std::string& verb) const;
  /// Draft tokens of a sequence and a step; 0: none.
  int64_t tokens() const;
};

}  // namespace quintet
