#pragma once
// JSON with checked access: nlohmann's silent conversions (negative to unsigned, 3.9 to 3, duplicate
// keys, endless nesting) are errors here, and each names the file and the path of the value. Parsing
// and walking over a document cost n log n of its bytes at most, whatever is in it.
//
//   const Json meta = Json::read("meta.json");
//   const int64_t emb = meta["config"]["emb_dim"].as_int();

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace quintet {

/// What a document may hold, and who may stop its parsing.
struct JsonLimits {
  size_t keys = 10'000'000;  // of all its objects together: a GB in memory
  size_t depth = 64;         // objects and arrays inside each other
  /// Called before the first value and after every few thousand; stops the parsing by throwing.
  std::function<void()> check_stop = {};
};

class Json {
 public:
  /// Parses a whole document; throws ExitCode::kData naming `where`, with the byte offset, or the
  /// limit that it exceeds.
  static Json parse(std::string_view text, std::string where = "json",
                    const JsonLimits& limits = {});
  static Json read(const std::filesystem::path& file);
  /// One document a line; empty lines are skipped.
  static std::vector<Json> read_lines(const std::filesystem::path& file);

  bool has(std::string_view key) const;
  /// Member of an object / element of an array; throws kData if it is not there.
  Json operator[](std::string_view key) const;
  Json operator[](size_t index) const;
  size_t size() const;
  bool is_null() const;
  bool is_string() const;
  bool is_number() const;
  bool is_bool() const;
  bool is_array() const;
  bool is_object() const;

  int64_t as_int() const;  // a JSON integer that fits
  /// A number, or one of the strings "NaN", "Infinity", "-Infinity".
  double as_double() const;
  bool as_bool() const;
  std::string as_string() const;
  std::vector<int64_t> as_ints() const;
  std::vector<double> as_doubles() const;
  std::vector<std::string> as_strings() const;
  std::vector<Json> items() const;                            // elements of an array
  std::vector<std::pair<std::string, Json>> members() const;  // of an object, in file order

  /// For its user to include <nlohmann/json.hpp>, which takes a second to compile.
  const nlohmann::ordered_json& raw() const { return *value_; }
  const std::string& path() const { return path_; }  // "meta.json:config.emb_dim"

 private:
  Json(std::shared_ptr<const nlohmann::ordered_json> root, const nlohmann::ordered_json* value,
       std::string path)
      : root_(std::move(root)), value_(value), path_(std::move(path)) {}
  [[noreturn]] void mismatch(std::string_view expected) const;
  const nlohmann::ordered_json* find(std::string_view key) const;  // null: not there
  Json member(std::string_view key, const nlohmann::ordered_json& value) const;

  std::shared_ptr<const nlohmann::ordered_json> root_;
  const nlohmann::ordered_json* value_;
  std::string path_;
};

/// A number as Json::as_double reads it: NaN and infinities as strings, the rest so that it reads back equal.
nlohmann::ordered_json json_number(double value);

/// Adds a member whose key the object does not have yet. Its operator[] looks for it among all, so
/// that writing many with it takes quadratic time.
void append_member(nlohmann::ordered_json& object, std::string key, nlohmann::ordered_json value);

/// A file's bytes; throws kData with the system's reason.
std::string read_file(const std::filesystem::path& file);

}  // namespace quintet
