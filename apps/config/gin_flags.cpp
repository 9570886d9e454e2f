#include "apps/config/gin_flags.h"

#include "runtime/gin/config.h"

namespace quintet {

gin::ReadByProgram read_by_program(std::vector<std::string> macros) {
  macros.emplace_back("VOCABULARY");  // of T5's own tasks
  return {.macros = std::move(macros),
          .configurables = {"t5x.train.train", "t5x.eval.evaluate", "t5x.infer.", "t5x.decoding.",
                            "t5x.partitioning.PjitPartitioner", "t5x.utils.DatasetConfig",
                            "t5x.checkpoints.OrbaxCheckpointManagerInterface", "seqio.", "t5.",
                            "quintet.data."}};
}

bool verifies_vocabs(const gin::Config& config, const std::string& function) {
  const std::string binding = function + ".verify_matching_vocabs_fn";
  return config.query(binding) == nullptr || !config.evaluate(binding).is_none();
}

}  // namespace quintet
