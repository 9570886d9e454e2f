#pragma once
// Random float32 parameters of a network, by name.

#include <map>
#include <string>

#include "models/network.h"
#include "runtime/base/host_array.h"
#include "runtime/tensor/parameters.h"

namespace quintet::testing {

/// Values from -largest to largest.
template <class Network, class Config>
std::map<std::string, HostArray> parameters_of(const Config& config, float largest) {
  Parameters declared;
  const Network network(Scope(declared), config);
  std::map<std::string, HostArray> arrays;
  for (const ParamInfo& info : declared.all()) {
    std::vector<int64_t> sizes;
    for (const Axis& axis : info.spec.axes) sizes.push_back(axis.size);
    HostArray& array = arrays[info.name] = HostArray(DType::f32, sizes);
    const Key key = key_of_parameter(key_from_seed(1), info.name);
    for (size_t i = 0; float& x : array.as<float>())
      x = (static_cast<float>(random_bits(key, i++) % 2001) / 1000 - 1) * largest;
  }
  return arrays;
}

}  // namespace quintet::testing
