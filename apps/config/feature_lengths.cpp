#include "apps/config/feature_lengths.h"

#include <charconv>

#include "data/tasks/gin_types.h"
#include "runtime/gin/registry/builtins.h"

namespace quintet {

using data::Lengths;

Lengths parse_lengths(const std::vector<std::string>& items) {
  Lengths lengths;
  for (const std::string& item : items) {
    const size_t equals = item.find('=');
    std::vector<int64_t> sizes;
    bool good = equals != std::string::npos;
    for (const char* at = item.data() + equals + 1; good;) {
      int64_t size = 0;
      const auto [end, error] = std::from_chars(at, item.data() + item.size(), size);
      good = error == std::errc() && size > 0;
      sizes.push_back(size);
      if (end == item.data() + item.size()) break;
      good = good && *end == 'x';
      at = end + 1;
    }
    QT_CHECK(good,
             "--task_feature_lengths: expected name=length such as inputs=512, or name=3x4 with a "
             "length "
             "of each dimension, found '{}'",
             item);
    lengths.emplace_back(item.substr(0, equals),
                         data::Length(sizes.front(), {sizes.begin() + 1, sizes.end()}));
  }
  return lengths;
}

Lengths configured_lengths(gin::Config& config) {
  const gin::Value* lengths = config.query("TASK_FEATURE_LENGTHS");
  if (lengths == nullptr || *lengths == gin::Value(gin::Macro{gin::kRequiredName})) return {};
  return gin::as<Lengths>(config.evaluate("TASK_FEATURE_LENGTHS"), {"%TASK_FEATURE_LENGTHS"});
}

}  // namespace quintet
