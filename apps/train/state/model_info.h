#pragma once
// model-info.txt: every variable of a run with its size, shape, logical axes and what the mesh makes of it.

#include <filesystem>

#include "runtime/trainer/trainer.h"

namespace quintet {

/// Parameters, their number, then optimizer state; in T5X's words.
std::string model_info(Parameters& parameters, Trainer& trainer);

}  // namespace quintet
