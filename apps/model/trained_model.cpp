#include "apps/model/trained_model.h"

#include "apps/input/run_vocabularies.h"
#include "apps/model/checkpoint_parameters.h"
#include "apps/model/quantized_model.h"
#include "checkpoint/huggingface/config.h"
#include "checkpoint/open/open_checkpoint.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {

namespace {

namespace fs = std::filesystem;

/// Where the configuration lies, and which checkpoint is read.
struct Place {
  fs::path model_dir, config, checkpoint;  // no checkpoint: the newest
};

Place place_of(const fs::path& path) {
  const fs::path named = local_path(path.string());
  QT_CHECK_AS(ExitCode::kData, fs::is_directory(named),
              "{}: no such folder; name a model directory", named.string());
  const fs::path folder = (named / "").parent_path();  // "runs/a" and "runs/a/" alike
  if (!is_there(folder / "config.gin") && huggingface::is_directory(folder))
    return {folder, folder / "config.json", folder};
  const bool is_checkpoint = folder.filename().string().starts_with("checkpoint_");
  Place place{
      is_checkpoint ? folder.parent_path() : folder, {}, is_checkpoint ? folder : fs::path()};
  place.config = place.model_dir / "config.gin";
  QT_CHECK_AS(ExitCode::kData, fs::exists(place.config),
              "{}: not there; {} is neither the directory of a training run nor a Hugging Face "
              "directory",
              place.config.string(), place.model_dir.string());
  return place;
}

/// A Hugging Face directory says nothing of data.
std::vector<std::string> with_no_data(const Place& place,
                                      const std::vector<std::string>& bindings) {
  std::vector<std::string> all;
  if (place.config.filename() == "config.json")
    for (const char* name :
         {"train_dataset_cfg", "train_eval_dataset_cfg", "infer_eval_dataset_cfg"})
      all.push_back(fmt::format("train_script.train.{} = None", name));
  all.insert(all.end(), bindings.begin(), bindings.end());
  return all;
}

}  // namespace

TrainedModel open_trained_model(const fs::path& path, const std::vector<std::string>& bindings,
                                Load load) {
  const Place place = place_of(path);
  TrainedModel trained;
  trained.model_dir = place.model_dir;
  use_copies_of(trained.model_dir);
  trained.session =
      std::make_unique<Session>(gin::CommandLine{.files = {place.config.string()},
                                                 .bindings = with_no_data(place, bindings),
                                                 .search_paths = {"."}});
  trained.model = gin::as<std::shared_ptr<ConfiguredModel>>(
      trained.session->config().evaluate("t5x.train.train.model"),
      {place.config.string() + ": train_script.train.model"});
  check_ids(*trained.model);
  if (load == Load::nothing) return trained;
  trained.checkpoint = place.checkpoint;
  if (trained.checkpoint.empty()) trained.checkpoint = find_checkpoint(trained.model_dir);
  trained.reader = open_checkpoint(trained.checkpoint);
  trained.reader->verify();
  check_recorded(*trained.reader, vocabularies_of(*trained.model));
  load_for(
      load == Load::all ? weights_of({}, trained.reader) : weights_to_generate({}, trained.reader),
      *trained.reader, *trained.model->model);
  trained.step = trained.reader->step();
  return trained;
}

}  // namespace quintet
