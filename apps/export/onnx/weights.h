#pragma once
// Parameters as constants of a graph: a Loader of models/decoding/network/weights.h.

#include <functional>
#include <map>

#include "apps/export/onnx/t5_graph.h"
#include "kernels/mlp/mlp.h"
#include "models/decoding/network/place.h"
#include "models/decoding/network/quantized_parameters.h"
#include "models/decoding/network/weights.h"

namespace quintet::onnx {

struct Mlp {
  std::vector<std::string> in;  // one matrix, or two whose products gate each other
  std::string out;
  std::vector<Activation> activations;
};
struct Experts {
  std::string router, router_bias;  // [embed, experts]; [experts] or empty
  MoeConfig moe;
  std::vector<Mlp> experts;
};

/// Names of values.
struct Form {
  using Vector = std::string;
  using Matrix = std::string;
  using Projections = std::vector<std::string>;  // each [embed, heads * head_dim]
  using Mlp = onnx::Mlp;
  using Experts = onnx::Experts;
  using Bias =
      std::string;  // [heads, distances]: of key - query from -max_distance to max_distance
};

class Loader {
 public:
  using Form = onnx::Form;
  Loader(Graph& graph, const ModelSpec& spec, const decoding::ParameterSource& source,
         const GraphOptions& options)
      : graph_(graph),
        spec_(spec),
        source_(decoding::by_matrix(spec, source)),
        dtype_(options.dtype),
        weights_(options.weights) {}

  std::string vector(const std::string& name, int64_t size) const;
  std::string matrix(const std::string& name, int64_t rows, int64_t columns) const;
  std::vector<std::string> projections(const std::string& scope,
                                       std::initializer_list<const char*> parts,
                                       decoding::ReadBy) const;
  Mlp mlp(const std::string& scope, int64_t width,
          const std::vector<std::string>& activations) const;
  Experts experts(const std::string& scope, const MoeConfig& moe) const;
  std::string relative_bias(const std::string& name, const StackSpec& stack) const;

 private:
  /// In the precision of the file; where layers name a parameter twice, what it was the first time.
  std::string parameter(const std::string& name, const std::vector<int64_t>& shape) const;
  /// The matrices of a stack [matrices, rows, columns].
  std::vector<std::string> stack(const std::string& name, const std::vector<int64_t>& shape) const;
  decoding::QuantizedParameter read(const std::string& name,
                                    const std::vector<int64_t>& shape) const;
  /// In float32 where it is computed with, whatever it is in the file.
  std::string add(const std::string& name, decoding::QuantizedParameter parameter) const;
  /// [embed, width] and [width, embed], each as many as `matrices` says of its name.
  std::vector<Mlp> mlps(
      const std::string& scope, const std::vector<std::string>& activations,
      const std::function<std::vector<std::string>(const std::string&, bool out)>& matrices) const;

  Graph& graph_;
  const ModelSpec& spec_;
  const decoding::ParameterSource source_;
  const DType dtype_;
  const WeightType weights_;
  mutable std::map<std::string, std::string> added_;
};

}  // namespace quintet::onnx
