#include "apps/model/trained_model.h"

#include "apps/input/run_vocabularies.h"
#include "apps/model/checkpoint_parameters.h"
#include "apps/model/quantized_model.h"
#include "runtime/base/path_map.h"

namespace quintet {

TrainedModel open_trained_model(const std::filesystem::path& path,
                                const std::vector<std::string>& bindings, bool load) {
  namespace fs = std::filesystem;
  const fs::path named = local_path(path.string());
  QT_CHECK_AS(ExitCode::kData, fs::is_directory(named),
              "{}: no such folder; name a model directory", named.string());
  const fs::path folder = named / "";  // "runs/a" and "runs/a/" alike
  const bool is_checkpoint = folder.parent_path().filename().string().starts_with("checkpoint_");
  TrainedModel trained;
  trained.model_dir = is_checkpoint ? folder.parent_path().parent_path() : folder.parent_path();
  const fs::path config = trained.model_dir / "config.gin";
  QT_CHECK_AS(ExitCode::kData, fs::exists(config),
              "{}: not there; {} is not the directory of a training run", config.string(),
              trained.model_dir.string());
  use_copies_of(trained.model_dir);
  trained.session = std::make_unique<Session>(
      gin::CommandLine{.files = {config.string()}, .bindings = bindings, .search_paths = {"."}});
  trained.model = gin::as<std::shared_ptr<ConfiguredModel>>(
      trained.session->config().evaluate("t5x.train.train.model"),
      {config.string() + ": train_script.train.model"});
  check_ids(*trained.model);
  if (!load) return trained;
  if (is_checkpoint) {
    trained.checkpoint = folder.parent_path();
  } else {
    RestoreCheckpointConfig newest;
    newest.path = {trained.model_dir.string()};
    trained.checkpoint = checkpoint_folders(newest).back();
  }
  trained.reader = std::make_shared<const CheckpointReader>(trained.checkpoint);
  trained.reader->verify();
  check_recorded(*trained.reader, vocabularies_of(*trained.model));
  load_for(weights_of({}, trained.reader), *trained.reader, *trained.model->model);
  trained.step = trained.reader->step();
  return trained;
}

}  // namespace quintet
