#pragma once
// A model as a training run left it: the configuration in its directory and the parameters of a checkpoint.
//
//   TrainedModel trained = open_trained_model("/runs/small");               // newest checkpoint
//   TrainedModel older = open_trained_model("/runs/small/checkpoint_500");
//   Predictor(*trained.model).predict(batch);

#include <filesystem>
#include <memory>

#include "apps/config/gin_session.h"
#include "checkpoint/checkpoint_reader.h"
#include "models/configurables.h"

namespace quintet {

struct TrainedModel {
  std::unique_ptr<GinSession> session;  // outlives the model: its configuration answers for methods
  std::shared_ptr<ConfiguredModel> model;
  std::filesystem::path model_dir;  // or the bundle
  std::string name;  // by which clients call it: the directory's last part, or what a bundle says
  std::filesystem::path config;  // config.gin or config.json; empty where files were given instead
  std::filesystem::path checkpoint;  // the folder that was read; empty with load = false
  // Of it; a quantized model's parameters are read from here when they are packed.
  std::shared_ptr<const CheckpointReader> reader;
  int64_t step = 0;
};

/// Which parameters are read: none, those that generation reads from the model, what it does where ranks hold the
/// network together (unless they are quantized none, and they are compared with the model's), or all.
enum class Load { nothing, to_generate, part, all };

/// `path`: a model directory of ours or T5X's, a checkpoint of any program, or a Hugging Face directory.
/// `line`: gin bindings over its config.gin or config.json; files instead of it, which bind MODEL or
/// train_script.train.model. Without a path they are all there is: a model with new parameters. Throws kData when there is
/// no configuration or no checkpoint, or it does not fit or was trained with other vocabularies.
/// `adapter`: merged into its parameters; empty: none.
TrainedModel open_trained_model(const std::filesystem::path& path,
                                const gin::CommandLine& line = {}, Load load = Load::all,
                                const std::string& adapter = "");

/// The same without a lora.LoraConfig in its configuration, for models that are written: a run's adapters are merged.
TrainedModel open_merged_model(const std::filesystem::path& path, const gin::CommandLine& line,
                               Load load, const std::string& adapter = "");

}  // namespace quintet
