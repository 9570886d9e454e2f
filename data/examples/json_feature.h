#pragma once
// Features as JSON.

#include <nlohmann/json_fwd.hpp>

#include "data/examples/dataset.h"

namespace quintet::data {

/// A JSON value as a feature: text, numbers, lists of them, grids; false if it has no form as one.
bool to_feature(const nlohmann::ordered_json& json, Value& value);

}  // namespace quintet::data
