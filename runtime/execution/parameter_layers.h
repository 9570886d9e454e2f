#pragma once
// Which parameters belong together: those of one layer are gathered, and their gradients summed, in one
// collective.
//
//   ParameterLayers layers;
//   layers.add(tensor, "encoder/layers_3/mlp/wi/kernel");   // of "encoder/layers_3"
//   layers.layer_of(tensor) == layers.layer_of(other);

#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/tensor/tensor.h"

namespace quintet {

class ParameterLayers {
 public:
  static const ParameterLayers& none();
  /// Of a layer are the names up to their first part that ends in _ and a number.
  void add(const Tensor& parameter, std::string_view name);
  /// "encoder/layers_3"; "" if it is of none.
  std::string_view layer_of(const Tensor& parameter) const;

  size_t size() const { return layers_.size(); }  // parameters

 private:
  std::unordered_map<const void*, std::string> layers_;
};

}  // namespace quintet
