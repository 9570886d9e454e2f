#pragma once
// How two checkpoints differ, whichever programs wrote them: names, shapes, dtypes, and the numbers of every tensor
// that both have.

#include <string>

#include "apps/flags/result_format.h"

namespace quintet {

/// Prints what `second` lacks, has besides or has otherwise than `first`, tensors with the largest difference first, as
/// text or one JSON object. A model directory is its newest checkpoint. Returns exit code 0, equal or not. Throws kData
/// for what is no checkpoint or damaged.
int compare_checkpoints(const std::string& first, const std::string& second,
                        const ResultFormat& format);

}  // namespace quintet
