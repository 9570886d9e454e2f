#pragma once
// Writes a model's network as an ONNX file that answers greedily (apps/export/onnx/t5_graph.h).

#include "apps/export/export_source.h"

namespace quintet {

/// Weights in `dtype` or quantized, none: as they are. Those of 2 GiB or more, which
/// one message cannot have, and with `external` those of any model go to OUTPUT.data, a parameter at a time. Gives the
/// bytes of both. Throws a usage error for a network without a graph, weights in fp8, or if there is something at either.
int64_t export_onnx(const ExportSource& source, std::optional<DType> dtype,
                    std::optional<WeightType> weights, bool external);

}  // namespace quintet
