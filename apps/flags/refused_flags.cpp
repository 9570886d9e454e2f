#include "apps/flags/refused_flags.h"

#include <fmt/ranges.h>

#include "runtime/base/check.h"

namespace quintet {

void refuse_flags(const CLI::App& app, std::initializer_list<const char*> flags,
                  std::string_view what_for) {
  std::vector<std::string_view> given;
  for (const char* flag : flags)
    if (app.count(flag) > 0) given.emplace_back(flag);
  QT_CHECK(given.empty(), "{}: {}; leave it away", fmt::join(given, ", "), what_for);
}

}  // namespace quintet
