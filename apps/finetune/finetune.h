#pragma once
// `quintet finetune`: the gin that a user would have written, from a model, files and flags, and the run that
// it is.

#include "apps/finetune/finetune_flags.h"

namespace quintet {

/// Reads the data once, writes OUTPUT_DIR/finetune.gin and prints it, and trains; a folder that has the file
/// of the same flags is resumed. `gin_line`: files that say what the model is, and bindings over all.
/// All ranks call it. Returns an exit code, 75 if asked to stop.
int run_finetuning(FinetuneFlags flags, const gin::CommandLine& gin_line,
                   const std::string& arguments);

}  // namespace quintet
