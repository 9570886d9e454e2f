#pragma once
// How answers are searched for or drawn: the same flags in every verb that writes answers.
//
//   DecodeFlags decode;
//   decode.add_to(cli.app());
//   if (!cli.parse(args)) return 0;
//   decode.check("infer");

#include <cstdint>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace quintet {

struct DecodeFlags {
  std::optional<int64_t> beams, top_k;
  std::optional<double> temperature, top_p;  // temperature 0 is greedy
  int64_t max_tokens = 0;                    // of an answer; 0: as the run or the model says

  void add_to(CLI::App& app);
  /// Without the length of answers. `otherwise`: what decides the beams without a flag.
  void add_search_to(CLI::App& app, const std::string& otherwise);
  /// Throws a usage error for flags that exclude one another.
  void check(const std::string& verb) const;
  bool samples() const { return temperature || top_k || top_p; }
  /// What was given, "" if nothing: " beams=4".
  std::string text() const;
};

}  // namespace quintet
