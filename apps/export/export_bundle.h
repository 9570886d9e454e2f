#pragma once
// Writes a model as one file of its own (checkpoint/bundle/bundle.h).

#include "apps/export/export_source.h"

namespace quintet {

/// In `dtype` or `weights`, if one is asked for; both none: as the checkpoint has them. The file appears whole or not at
/// all, after it has been read back and compared. Gives its bytes. Throws ExitCode::kUsage if there is something at `output`
/// or quantized weights are to be rounded again, ExitCode::kData for a damaged source, ExitCode::kDisk.
int64_t export_bundle(const ExportSource& source, std::optional<DType> dtype,
                      std::optional<WeightType> weights);

}  // namespace quintet
