#pragma once
// The fields of a JSON request: each is read once, with its range; one that nobody reads is an
// error, and so is anything out of range, always naming the field.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/serve/api/api_error.h"
#include "runtime/base/formats/json.h"

namespace quintet::serve {

class Fields {
 public:
  /// Throws ApiError 400 for what is no JSON object, and what `check_stop` throws: it is called
  /// while the body is parsed.
  explicit Fields(const std::string& body, std::function<void()> check_stop = {});

  /// The value, or nothing if it is missing or null.
  std::optional<Json> get(const std::string& name);
  int64_t integer(const std::string& name, int64_t otherwise, int64_t least, int64_t most);
  double number(const std::string& name, double otherwise, double least, double most);
  bool boolean(const std::string& name, bool otherwise);
  std::string string(const std::string& name, const std::string& otherwise);
  /// A string or a list of at most `most` strings.
  std::vector<std::string> strings(const std::string& name, int64_t most);
  /// Throws ApiError 400 with the field's name and why, unless it is missing, null, or `neutral`.
  void refuse(const std::string& name, const nlohmann::ordered_json& neutral,
              const std::string& why);
  /// Throws ApiError 400 naming a field that was not read.
  void check_all_read() const;

 private:
  Json body_;
  std::vector<std::string> read_;
};

/// A prompt: text, or token ids.
struct Text {
  std::optional<std::string> text;
  std::vector<int32_t> ids;
};

/// A string, a list of strings, a list of ids or a list of lists of ids; at most `most` prompts.
std::vector<Text> texts(Fields& fields, const std::string& name, int64_t most, int64_t vocab_size);

}  // namespace quintet::serve
