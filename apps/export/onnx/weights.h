#pragma once
// Parameters as constants of a graph: a Loader of models/decoding/network/weights.h.

#include <map>

#include "apps/export/onnx/t5_graph.h"
#include "kernels/mlp/mlp.h"
#include "models/decoding/network/weights.h"

namespace quintet::onnx {

struct Mlp {
  std::vector<std::string> in;  // one matrix, or two whose products gate each other
  std::string out;
  std::vector<Activation> activations;
};
struct NoExperts {};

/// Names of values.
struct Form {
  using Vector = std::string;
  using Matrix = std::string;
  using Projections = std::vector<std::string>;  // each [embed, joined_kv]
  using Mlp = onnx::Mlp;
  using Experts = NoExperts;
  using Bias =
      std::string;  // [heads, distances]: of key - query from -max_distance to max_distance
};

class Loader {
 public:
  using Form = onnx::Form;
  Loader(Graph& graph, const ModelSpec& spec, const decoding::ParameterSource& source, DType dtype)
      : graph_(graph), spec_(spec), source_(source), dtype_(dtype) {}

  std::string vector(const std::string& name, int64_t size) const;
  std::string matrix(const std::string& name, int64_t rows, int64_t columns) const;
  std::vector<std::string> projections(const std::string& scope,
                                       std::initializer_list<const char*> parts,
                                       decoding::ReadBy) const;
  Mlp mlp(const std::string& scope, int64_t width,
          const std::vector<std::string>& activations) const;
  NoExperts experts(const std::string& scope, const MoeConfig& moe) const;
  std::string relative_bias(const std::string& name, const StackSpec& stack) const;

 private:
  HostArray read(const std::string& name, std::vector<int64_t> shape) const;
  /// A kernel [embed, kv] of multi-query attention as [embed, joined_kv].
  HostArray for_all_heads(const HostArray& one) const;
  /// In float32 where it is computed with, whatever it is in the file.
  std::string add(const std::string& name, HostArray array) const;

  Graph& graph_;
  const ModelSpec& spec_;
  const decoding::ParameterSource& source_;
  const DType dtype_;
};

}  // namespace quintet::onnx
