#pragma once
// What T5X writes beside results about the model that gave them: config.gin and model-info.txt.
//
//   atomic_write_file(model_dir / "model-info.txt", model_info(parameters, rules, trainer.state()));

#include <filesystem>

#include "runtime/mesh/rules.h"
#include "runtime/optim/optimizer.h"
#include "runtime/tensor/parameters.h"

namespace quintet {

/// T5X's log_model_info: every parameter with its size, shape, logical axes and the mesh axes that the
/// rules give it, their number, then the state. Sizes are of whole arrays, whatever part this rank has.
std::string model_info(const Parameters& parameters, const LogicalAxisRules& rules,
                       const std::vector<StateArray>& state = {});

/// Both files in the folder of an evaluation's or inference's results, which is made; none: nothing. Nothing
/// either in a folder that holds one of the checkpoints: it is the run's own, and has them. No
/// `config_text`: no config.gin.
void describe_results(const std::filesystem::path& output_dir,
                      const std::vector<std::filesystem::path>& checkpoints,
                      const std::string& config_text, const Parameters& parameters,
                      const LogicalAxisRules& rules);

}  // namespace quintet
