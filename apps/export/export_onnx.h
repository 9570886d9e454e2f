#pragma once
// Writes a model's network as an ONNX file that answers greedily (apps/export/onnx/t5_graph.h).

#include "apps/export/export_source.h"

namespace quintet {

/// Weights in `dtype`; none: float32. Gives the file's bytes. Throws a usage error for a network without a graph, weights in
/// 8 bits, more than the 2 GiB that such a file may have, or if there is something at `output`.
int64_t export_onnx(const ExportSource& source, std::optional<DType> dtype);

}  // namespace quintet
