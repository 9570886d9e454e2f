#include "apps/page/page.h"

namespace quintet::page {
namespace {

std::string with_replaced(std::string_view text,
                          std::initializer_list<std::pair<char, std::string_view>> by) {
  std::string safe;
  for (const char c : text) {
    std::string_view put(&c, 1);
    for (const auto& [from, to] : by)
      if (c == from) put = to;
    safe += put;
  }
  return safe;
}

}  // namespace

std::string escaped(std::string_view text) {
  return with_replaced(
      text, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}});
}

std::string escaped_json(std::string_view json) {
  return with_replaced(json, {{'<', "\\u003c"}, {'>', "\\u003e"}, {'&', "\\u0026"}});
}

}  // namespace quintet::page
