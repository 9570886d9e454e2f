#include "runtime/mesh/layout.h"

#include <fmt/format.h>

namespace quintet {

std::string to_string(const Spec& spec) {
  std::string text;
  for (const Axis& axis : spec.axes)
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", axis.name, axis.size);
  return fmt::format("[{}] {}", text, name_of(spec.dtype));
}

}  // namespace quintet
