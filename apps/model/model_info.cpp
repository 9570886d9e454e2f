#include "apps/model/model_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace quintet {
namespace {

std::string variable_line(const std::string& name, int64_t size, const std::vector<int64_t>& shape,
                          const std::vector<std::string>& axes) {
  std::vector<std::string> dimensions;
  for (size_t i = 0; i < shape.size(); ++i)
    dimensions.push_back(i < axes.size() && !axes[i].empty()
                             ? fmt::format("{}={}", axes[i], shape[i])
                             : fmt::format("{}", shape[i]));
  return fmt::format("Variable    {:<80} size {:<12} shape ({})\n", name, size,
                     fmt::join(dimensions, ", "));
}

}  // namespace

std::string model_info(Parameters& parameters, Trainer& trainer) {
  std::string text;
  std::string states;
  for (const StateArray& array : trainer.state()) {
    const std::vector<int64_t> shape(array.view.sizes.begin(),
                                     array.view.sizes.begin() + array.view.rank);
    const bool is_parameter = array.name.starts_with("target/");
    (is_parameter ? text : states) += variable_line(
        is_parameter ? array.name.substr(7) : array.name, array.view.elements(), shape, array.axes);
  }
  return fmt::format("{}Total number of parameters: {}\n\n{}", text, parameters.elements(), states);
}

}  // namespace quintet
