#include "apps/config/gin_flags.h"

#include "runtime/base/check.h"
#include "runtime/gin/config.h"

namespace quintet {

gin::ReadByProgram read_by_program(std::vector<std::string> macros) {
  macros.emplace_back("VOCABULARY");  // of T5's own tasks
  return {.macros = std::move(macros),
          .configurables = {"t5x.train.train", "t5x.eval.evaluate", "t5x.infer.", "t5x.export_lib.",
                            "t5x.precompile.precompile", "t5x.decoding.",
                            "t5x.partitioning.PjitPartitioner", "t5x.utils.DatasetConfig",
                            "t5x.utils.get_training_eval_datasets",
                            "t5x.checkpoints.OrbaxCheckpointManagerInterface", "seqio.", "t5.",
                            "quintet.data.", "quintet.serving."}};
}

bool verifies_vocabs(const gin::Config& config, const std::string& function) {
  const std::string binding = function + ".verify_matching_vocabs_fn";
  if (config.query(binding) == nullptr) return true;
  const gin::Value value = config.evaluate(binding);
  if (value.is_none()) return false;
  constexpr const char* kVerify = "t5x.utils.verify_matching_vocabs";
  const std::string name = gin::as<gin::Callable>(value, {binding}).name();
  QT_CHECK(name == kVerify, "{}: expected @{} or None, found @{}: Python is not run", binding,
           kVerify, name);
  return true;
}

}  // namespace quintet
