#pragma once
// A model as a training run left it: the configuration in its directory and the parameters of a checkpoint.
//
//   TrainedModel trained = open_trained_model("/runs/small");               // newest checkpoint
//   TrainedModel older = open_trained_model("/runs/small/checkpoint_500");
//   Predictor(*trained.model).predict(batch);

#include <filesystem>
#include <memory>

#include "apps/config/session.h"
#include "checkpoint/region_reader.h"
#include "models/configurables.h"

namespace quintet {

struct TrainedModel {
  std::unique_ptr<Session> session;  // outlives the model: its configuration answers for methods
  std::shared_ptr<ConfiguredModel> model;
  std::filesystem::path model_dir;
  std::filesystem::path checkpoint;  // the folder that was read; empty with load = false
  // Of it; a quantized model's parameters are read from here when they are packed.
  std::shared_ptr<const CheckpointReader> reader;
  int64_t step = 0;
};

/// `path`: a model directory, or a checkpoint in it. `bindings`: gin bindings over its config.gin.
/// Without `load` the parameters are left as they are. Throws kData when there is no configuration or no
/// checkpoint, or it does not fit or was trained with other vocabularies.
TrainedModel open_trained_model(const std::filesystem::path& path,
                                const std::vector<std::string>& bindings = {}, bool load = true);

}  // namespace quintet
