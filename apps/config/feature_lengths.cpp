#include "apps/config/feature_lengths.h"

#include "data/tasks/gin_types.h"
#include "runtime/gin/registry/builtins.h"

namespace quintet {

using data::Lengths;

Lengths parse_lengths(const std::vector<std::string>& items) {
  Lengths lengths;
  for (const std::string& item : items) {
    const size_t equals = item.find('=');
    size_t used = 0;
    int64_t length = 0;
    try {
      length = std::stoll(item.substr(equals + 1), &used);
    } catch (const std::exception&) {
      used = 0;
    }
    QT_CHECK(
        equals != std::string::npos && used > 0 && equals + 1 + used == item.size() && length > 0,
        "--task_feature_lengths: expected name=length such as inputs=512, found '{}'", item);
    lengths.emplace_back(item.substr(0, equals), length);
  }
  return lengths;
}

Lengths configured_lengths(gin::Config& config) {
  const gin::Value* lengths = config.query("TASK_FEATURE_LENGTHS");
  if (lengths == nullptr || *lengths == gin::Value(gin::Macro{gin::kRequiredName})) return {};
  return gin::as<Lengths>(config.evaluate("TASK_FEATURE_LENGTHS"), {"%TASK_FEATURE_LENGTHS"});
}

}  // namespace quintet
