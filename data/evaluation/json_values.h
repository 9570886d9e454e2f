#pragma once
// Answers and examples as JSON, for the files of evaluation and inference.

#include <nlohmann/json_fwd.hpp>

#include "data/examples/dataset.h"
#include "data/metrics/answer.h"

namespace quintet::data {

using JsonText = nlohmann::ordered_json;

/// The text, or base64 of bytes that are no UTF-8.
JsonText text_json(const std::string& text);
JsonText answer_json(const Answer& answer);
/// Arrays as nested lists.
JsonText value_json(const Value& value);
/// An array of more than 32 numbers as its shape and the first and last of them, as seqio writes
/// it.
JsonText summarized_json(const Value& value);

}  // namespace quintet::data
