#pragma once
// Where generation takes a network's parameters from: a model, a checkpoint, a test's arrays.

#include <functional>
#include <string>

#include "runtime/base/view.h"

namespace quintet::decoding {

/// A parameter in float32, or as models/decoding/network/quantized_parameters.h makes it.
struct StoredParameter {
  View values;
  const float* scales = nullptr;  // int8: one a column, of tied embeddings a row

  StoredParameter(const View& v, const float* s = nullptr) : values(v), scales(s) {}  // NOLINT
};
/// The parameter of that name; the view need only last until the next call.
using ParameterSource = std::function<StoredParameter(const std::string& name)>;

}  // namespace quintet::decoding
