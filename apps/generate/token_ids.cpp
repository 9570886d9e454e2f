#include "apps/generate/token_ids.h"

#include <charconv>

#include "runtime/base/check.h"

namespace quintet {

std::vector<int32_t> parse_token_ids(const std::string& text, const std::string& what,
                                     int64_t vocab_size) {
  constexpr const char* kBetween = " ,\t\r";
  std::vector<int32_t> ids;
  for (size_t begin = text.find_first_not_of(kBetween); begin != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, id);
    QT_CHECK(
        error == std::errc() && stop == text.data() + end && id > 0 && id < vocab_size,
        "{}: '{}' is no token id: expected numbers from 1 to {} with blanks between (0 is padding "
        "and the start token, which are left out)",
        what, text.substr(begin, std::min<size_t>(end - begin, 40)), vocab_size - 1);
    ids.push_back(id);
    begin = text.find_first_not_of(kBetween, end);
  }
  QT_CHECK(!ids.empty(), "{}: holds no token id", what);
  return ids;
}

}  // namespace quintet
