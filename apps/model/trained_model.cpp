#include "apps/model/trained_model.h"

#include "apps/config/ineffective.h"
#include "apps/input/run_vocabularies.h"
#include "apps/model/checkpoint_parameters.h"
#include "apps/model/quantized_model.h"
#include "checkpoint/bundle/bundle.h"
#include "checkpoint/huggingface/config.h"
#include "checkpoint/lora/peft.h"
#include "checkpoint/open/formats.h"
#include "checkpoint/open/open_checkpoint.h"
#include "checkpoint/open/recognize.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {

namespace {

namespace fs = std::filesystem;

/// Where the configuration lies, and which checkpoint is read.
struct Place {
  fs::path model_dir, config, checkpoint;  // no checkpoint: the newest
};

/// A run's directory, a checkpoint in one, a Hugging Face directory or a bundle; `named`: it has a configuration.
Place place_with_config(const fs::path& named) {
  const fs::path folder = (named / "").parent_path();  // "runs/a" and "runs/a/" alike
  if (bundle::is_at(folder)) return {folder, folder, folder};
  if (!is_there(folder / "config.gin") && huggingface::is_directory(folder))
    return {folder, folder / "config.json", folder};
  const bool is_checkpoint = folder.filename().string().starts_with("checkpoint_");
  Place place{
      is_checkpoint ? folder.parent_path() : folder, {}, is_checkpoint ? folder : fs::path()};
  place.config = place.model_dir / "config.gin";
  if (fs::exists(place.config)) return place;
  const CheckpointFormat* format = format_at(folder);
  QT_CHECK_AS(ExitCode::kData, format == nullptr,
              "{}: this is {}, and {} is not there: name the gin file of its model with --gin_file",
              folder.string(), format == nullptr ? "" : format->name, place.config.string());
  fail(ExitCode::kData,
       "{}: not there; {} is neither the directory of a training run nor a Hugging Face "
       "directory: this is {}",
       place.config.string(), place.model_dir.string(), what_lies_at(folder));
}

Place place_of(const fs::path& path, bool has_config) {
  if (path.empty() && has_config) return {};
  const fs::path named = local_path(path.string());
  QT_CHECK_AS(ExitCode::kData, fs::is_directory(named) || format_at(named) != nullptr,
              "{}: no such folder; name a model directory or a checkpoint", named.string());
  if (!has_config && is_peft(named)) {
    Place place = place_with_config(path_of_base(peft_base(named), named));
    place.checkpoint = named;
    return place;
  }
  if (!has_config) return place_with_config(named);
  const fs::path checkpoint = find_checkpoint(named);
  return {fs::is_directory(named) ? named : named.parent_path(), {}, checkpoint};
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

std::shared_ptr<ConfiguredModel> model_in(const gin::Config& config, const std::string& where) {
  constexpr const char* kBinding = "t5x.train.train.model";
  const bool is_bound = config.query(kBinding) != nullptr;
  QT_CHECK(is_bound || config.query("MODEL") != nullptr,
           "{}: binds neither train_script.train.model nor MODEL, so there is no model", where);
  return gin::as<std::shared_ptr<ConfiguredModel>>(
      config.evaluate(is_bound ? kBinding : "MODEL"),
      {where + (is_bound ? ": train_script.train.model" : ": MODEL")});
}

}  // namespace

TrainedModel open_trained_model(const fs::path& path, const gin::CommandLine& line, Load load,
                                const std::string& adapter) {
  const Place place = place_of(path, !line.files.empty());
  TrainedModel trained;
  trained.model_dir = place.model_dir;
  trained.name = bundle::is_at(place.model_dir) ? bundle::Reader(place.model_dir).name()
                                                : place.model_dir.filename().string();
  trained.config = place.config;
  if (!trained.model_dir.empty()) use_copies_of(trained.model_dir);
  gin::CommandLine all = line;
  if (all.files.empty()) all.files = {place.config.string()};
  all.bindings = with_no_data(place, line.bindings);
  trained.session =
      std::make_unique<GinSession>(all, EntryPoints{},
                                   GinSession::Options{.macros = {"MODEL_DIR"},
                                                       .trained = place.config.string(),
                                                       .allow_commands = !line.files.empty()});
  trained.model = model_in(trained.session->config(), all.files.back());
  warn_of_dtype(*trained.model);
  check_ids(*trained.model);
  if (load == Load::nothing) return trained;
  trained.checkpoint = place.checkpoint;
  if (trained.checkpoint.empty()) trained.checkpoint = find_checkpoint(trained.model_dir);
  trained.reader = open_checkpoint(trained.checkpoint);
  if (!adapter.empty()) trained.reader = adapted(trained.reader, adapter);
  trained.reader->verify_before_reading();
  check_recorded(*trained.reader, vocabularies_of(*trained.model));
  Weights weights =
      load == Load::all ? weights_of({}, trained.reader) : weights_to_generate({}, trained.reader);
  if (load == Load::part) weights.stored = trained.reader;
  load_for(weights, *trained.reader, *trained.model->model);
  trained.step = trained.reader->step();
  return trained;
}

TrainedModel open_merged_model(const fs::path& path, const gin::CommandLine& line, Load load,
                               const std::string& adapter) {
  TrainedModel as_run = open_trained_model(path, line, Load::nothing);
  gin::CommandLine merged = line;
  if (as_run.model->lora)
    merged.bindings.push_back(as_run.model->name + ".lora = None");
  else if (load == Load::nothing)
    return as_run;
  return open_trained_model(path, merged, load, adapter);
}

}  // namespace quintet
