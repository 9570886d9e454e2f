#include "runtime/mesh/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace quintet {

std::string to_string(const Spec& spec) { return to_string(spec, {}); }

std::string to_string(const Spec& spec, const Layout& layout) {
  std::string text;
  for (size_t i = 0; i < spec.axes.size(); ++i) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", spec.axes[i].name, spec.axes[i].size);
    if (i < layout.dims.size() && !layout.dims[i].empty())
      text += fmt::format("/{}", fmt::join(layout.dims[i], "+"));
  }
  text = fmt::format("[{}] {}", text, name_of(spec.dtype));
  if (!layout.partial.empty()) text += fmt::format(", sum over {}", fmt::join(layout.partial, "+"));
  return text;
}

}  // namespace quintet
