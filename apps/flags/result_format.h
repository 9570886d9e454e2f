#pragma once
// --format of verbs that have results as JSON objects and as text for people.

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace quintet {

/// "json": objects, one a line, on stdout; "text": sentences and tables, on stderr; "auto": both, but the text alone where
/// both are seen on a terminal.
class ResultFormat {
 public:
  void add_to(CLI::App& app);
  bool has_objects() const;
  bool has_text() const { return format_ != "json"; }
  /// Each does nothing where the format has no such part. Text follows the objects that were printed before it.
  void print_object(std::string_view json) const;
  void print_text(std::string_view text) const;

 private:
  std::string format_ = "auto";
};

}  // namespace quintet
