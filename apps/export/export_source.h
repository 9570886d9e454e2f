#pragma once
// What `quintet export` writes: a model and the checkpoint of its parameters, from a model directory or as T5X's gin files
// say it (export_lib.save).
//
//   export_bundle(source_of(flags, gin_line), flags.weights(), flags.output);

#include <memory>
#include <optional>

#include "apps/config/checkpoint_config.h"
#include "apps/config/gin_session.h"
#include "apps/flags/quantize_flag.h"
#include "apps/huggingface/generation_config.h"
#include "checkpoint/checkpoint_reader.h"
#include "data/examples/preprocessor.h"
#include "models/configurables.h"
#include "runtime/base/dtype.h"

namespace CLI {
class App;
}

namespace quintet {

struct ExportFlags {
  std::string model_dir, adapter, output, name, dtype, format = "bundle";
  bool external_data = false;
  QuantizeFlag quantize;

  void add_to(CLI::App& app);
  bool is_onnx() const { return format == "onnx"; }
  /// Throws a usage error for flags that do not go together.
  void check() const;
};

/// The arguments of export_lib.save.
struct ExportConfig {
  std::shared_ptr<ConfiguredModel> model;
  RestoreCheckpointConfig restore;
  std::optional<data::Features> features;  // or the task's
  std::optional<std::string> task;
  data::Lengths lengths;
  std::filesystem::path output_dir;
  std::string model_name;
};
ExportConfig export_config_from(const gin::Arguments& args);

struct ExportSource {
  std::shared_ptr<ConfiguredModel> model;        // without values
  std::shared_ptr<const CheckpointReader> from;  // its parameters
  std::string config;                            // the text of config.gin
  std::string name;                              // by which clients call it
  std::string output;                            // the file
  std::optional<int64_t> answer_length = {};     // tokens, where the run or the gin files say it
  std::string generation_config = {};  // kept_generation_config of where the parameters come from
  std::optional<GenerationDefaults> defaults = {};  // the same, read
  std::shared_ptr<GinSession> session = {};         // outlives the model; null: the caller's
};

/// Of a model directory, a checkpoint, a bundle or a Hugging Face directory, and the flags. Throws what open_trained_model
/// throws.
ExportSource source_of(const ExportFlags& flags, const gin::CommandLine& gin_line);
/// Of the arguments of export_lib.save; the output is OUTPUT_DIR/model.safetensors, or .onnx. Throws usage errors with file,
/// line and parameter.
ExportSource source_of(const ExportFlags& flags, GinSession& session, const gin::Arguments& args);

/// In which weights the file has the parameters, the flags' or those that they are in already; none: in floating point. Throws
/// a usage error for flags that would change what is quantized.
std::optional<WeightType> quantization_of(const ExportSource& source, std::optional<DType> dtype,
                                          std::optional<WeightType> weights);

/// Writes the file as the flags say and prints a line about it.
void export_model(const ExportFlags& flags, ExportSource source);

}  // namespace quintet
