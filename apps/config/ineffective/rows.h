#pragma once
// The rows that the table of ineffective.h is made of.
//
//   {{kTrain}, "gc_period", kWarned, "there is no garbage collector"}
//   {{kEncoder, kDecoder}, "layer_norm_factory", kRefused, "...", is_named("...T5LayerNorm")}

#include <string>
#include <vector>

#include "runtime/gin/config_use.h"

namespace quintet::ineffective {

using Verdict = gin::Ineffective::Verdict;
constexpr Verdict kWarned = Verdict::warned, kRefused = Verdict::refused,
                  kRemoved = Verdict::removed;
using IsMet = std::function<bool(const gin::Value&, const gin::Config&)>;

/// One parameter of several configurables; see gin::Ineffective.
struct Row {
  std::vector<std::string> configurables;
  std::string parameter;
  Verdict verdict;
  std::string reason;
  IsMet is_met = {};
};

/// A reference to what happens anyway.
IsMet is_named(std::string name);
/// A value that asks for what happens anyway.
IsMet is_one_of(std::vector<gin::Value> values);
/// A list or tuple of these.
IsMet are(std::vector<gin::Value> items);
bool always(const gin::Value&, const gin::Config&);
bool is_empty(const gin::Value& value, const gin::Config&);

/// Of flaxformer's modules.
std::vector<Row> rows_of_flaxformer();
/// Of t5x.export_lib and t5x.precompile.
std::vector<Row> rows_of_export();

}  // namespace quintet::ineffective
