#pragma once
// A mixture of experts in generation: a row goes to the experts its router likes best, and none is
// turned away, so that a row's result does not depend on the rows beside it. (The reference's
// capacities leave room for a step's few rows too.) In whole sequences experts may choose their tokens, or
// have a capacity of each sequence (models/moe.h).

#include "models/decoding/cpu/layer_parts.h"
#include "models/decoding/cpu/prefill.h"

namespace quintet::decoding {

/// Rows by expert: of expert e those at [begin[e], begin[e + 1]).
struct ExpertRows {
  std::vector<int64_t> begin, row;
  std::vector<float> gate;
};

/// x: [rows, embed], normalized.
ExpertRows route_rows(const PackedExperts& experts, const float* x, int64_t rows);

/// The same of whole sequences, x: [sequences.size(), embed], where what a row gets depends on others. `routings`: gets
/// what losses need of a whole batch.
ExpertRows route_sequences(const PackedExperts& experts, const float* x, const Sequences& sequences,
                           std::vector<LayerRouting>* routings);

/// How many there are of whole sequences at most.
int64_t most_chosen(const MoeConfig& moe, const Sequences& sequences);

/// Those of rows [first, first + count), counted from `first`.
ExpertRows part_of(const ExpertRows& routed, int64_t first, int64_t count);

/// The products of every expert's rows, in two phases; between them all parts must have finished the
/// first. A team's buffers; a part's rows.
class ExpertProducts {
 public:
  /// hidden: [chosen rows, mlp of the experts], for this part's panels of this rank's columns.
  static void in(const PackedExperts& experts, const ExpertRows& routed, const float* x, Part part,
                 PackedRows& packed, float* hidden);
  /// y [rows, embed] += gate * expert's output, for this part's panels; `y` begins at this rank's columns.
  static void out(const PackedExperts& experts, const ExpertRows& routed, const float* hidden,
                  Part part, PackedRows& packed, float* y);
};

}  // namespace quintet::decoding
