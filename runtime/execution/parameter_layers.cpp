#include "runtime/execution/parameter_layers.h"

#include <algorithm>

namespace quintet {

const ParameterLayers& ParameterLayers::none() {
  static const ParameterLayers layers;
  return layers;
}

void ParameterLayers::add(const Tensor& parameter, std::string_view name) {
  std::string& layer = layers_[parameter.id()];
  for (size_t begin = 0, end = 0; begin < name.size(); begin = end + 1) {
    end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    const size_t last = part.find_last_not_of("0123456789");
    if (last == std::string_view::npos || last + 1 == part.size() || part[last] != '_') continue;
    layer = name.substr(0, end);
    return;
  }
}

std::string_view ParameterLayers::layer_of(const Tensor& parameter) const {
  const auto found = layers_.find(parameter.id());
  return found == layers_.end() ? std::string_view() : found->second;
}

}  // namespace quintet
