#pragma once
// Trimming, padding and packing to fixed lengths, row for row as seqio.utils does it.
//
//   lengths {targets: 5}, examples [3 4 1], [5 1], [6 1]
//   pad  -> [3 4 1 0 0], [5 1 0 0 0], [6 1 0 0 0]
//   pack -> targets [3 4 1 5 1], segment ids [1 1 1 2 2], positions [0 1 2 0 1],
//           and a second row: targets [6 1 0 0 0] ..
//
// Packing works in groups of max(lengths) examples: the end of a group closes its rows. Greedy
// packing (seqio's) has one open row and takes examples in order. Best fit (best-fit decreasing)
// takes a group's longest examples first and puts each into the fullest row that has room; a row's
// examples, and the rows, are in the order in which examples came. Zeros do not count towards a
// sequence's length.

#include "data/examples/preprocessor.h"

namespace quintet::data {

enum class Packing { greedy, best_fit };

/// Adds "<feature>_segment_ids" and "<feature>_positions" for every feature of `lengths` and
/// removes other features. Throws kData if a feature is missing.
StreamPtr trim_and_pack(StreamPtr input, const Lengths& lengths, Packing packing = Packing::greedy);
/// Features without a length stay as they are.
StreamPtr trim_and_pad(StreamPtr input, const Lengths& lengths);

}  // namespace quintet::data
