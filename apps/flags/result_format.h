#pragma once
// --format of verbs that print results, as JSON objects and as text for people.
//
//   ResultFormat format;              // measurements: objects on stdout, text on stderr; on a terminal text alone
//   ResultFormat format{"text"};      // listings and answers: text on stdout, in a pipe, too
//   format.print_object(json.dump());
//   format.print_text("3 tensors\n");

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace quintet {

/// "json": objects alone, one a line; "text": sentences and tables alone; both on stdout. "auto": objects on stdout and text
/// on stderr, but the text alone where both are seen on a terminal.
class ResultFormat {
 public:
  explicit ResultFormat(std::string otherwise = "auto") : format_(std::move(otherwise)) {}
  void add_to(CLI::App& app);
  bool is_json() const { return format_ == "json"; }
  /// Each does nothing where the format has no such part. Text follows the objects that were printed before it.
  void print_object(std::string_view json) const;
  void print_text(std::string_view text) const;

 private:
  bool has_objects() const;

  std::string format_;
};

}  // namespace quintet
