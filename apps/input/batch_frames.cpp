#include "apps/input/batch_frames.h"

#include <unistd.h>

#include <CLI/App.hpp>
#include <nlohmann/json.hpp>

#include "apps/flags/refused_flags.h"
#include "apps/process/version.h"
#include "runtime/base/check.h"
#include "runtime/base/dtype.h"
#include "runtime/base/process/frames.h"

namespace quintet {
namespace {

std::string described(const HostArrays& features) {
  nlohmann::json json = {{"version", kVersion}, {"features", nlohmann::json::array()}};
  for (const auto& [name, array] : features)
    json["features"].push_back({{"name", name},
                                {"dtype", std::string(name_of(array.dtype))},
                                {"shape", array.shape},
                                {"bytes", array.bytes.size()}});
  return json.dump();
}

}  // namespace

void send_batches(data::BatchSource& batches, int file) {
  uint64_t number = 0;
  for (auto batch = batches.next(); batch; batch = batches.next()) {
    if (number == 0 && !write_frame(file, {}, {described(batch->features)})) return;
    std::vector<std::string_view> arrays;
    for (const auto& [name, array] : batch->features)
      arrays.emplace_back(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
    const FrameHead head{.request = ++number, .status = static_cast<int32_t>(batch->rows)};
    if (!write_frame(file, head, arrays)) return;
  }
  write_frame(file, {}, {});
}

void BatchFlags::add_to(CLI::App& app) {
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 30);
  app.add_option("--batch_size", batch_size, "rows of a batch (for batches)")
      ->capture_default_str()
      ->check(positive);
  app.add_option("--epochs", epochs, "passes over the data; 0: without end")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  app.add_option("--feature_converter", converter,
                 "seqio's name of what makes model features; default: EncDecFeatureConverter, "
                 "LMFeatureConverter for tasks without inputs");
}

void refuse_flags_of_others(const CLI::App& app, std::string_view what) {
  if (what == "list")
    refuse_flags(app,
                 {"task", "--split", "--task_feature_lengths", "--shuffle", "--seed", "--no_pack",
                  "--best_fit", "--use_cached"},
                 "is about one task, and 'quintet data list' lists all");
  if (what == "prepare")
    refuse_flags(app,
                 {"--split", "--task_feature_lengths", "--shuffle", "--seed", "--no_pack",
                  "--best_fit", "--use_cached"},
                 "is about one task, and 'quintet data prepare' writes a whole data set");
  if (what != "list") refuse_flags(app, {"--provenance"}, "is for 'quintet data list'");
  if (what != "prepare") refuse_flags(app, {"--from"}, "is for 'quintet data prepare'");
  if (what != "show") refuse_flags(app, {"--num", "--most_ids"}, "is for 'quintet data show'");
  if (what != "lengths")
    refuse_flags(app, {"--length_percentiles", "--length_example_count"},
                 "is for 'quintet data lengths'");
  if (what == "lengths")
    refuse_flags(app, {"--no_pack", "--best_fit"}, "is about rows; lengths are those of examples");
  if (what == "batches") refuse_flags(app, {"--format"}, "is for what is read by people");
  if (what != "batches")
    refuse_flags(app, {"--batch_size", "--epochs", "--feature_converter"},
                 "is for 'quintet data batches'");
}

void BatchFlags::send(const std::string& name, const data::Provider& task,
                      const data::ShowOptions& show, int file) const {
  QT_CHECK(isatty(file) == 0,
           "quintet data batches: standard output is a terminal; libquintet.so reads it");
  const data::DatasetConfig config{
      .mixture_or_task_name = name,
      .task_feature_lengths =
          show.lengths.empty() ? data::default_lengths(task.output_features()) : show.lengths,
      .split = show.split,
      .batch_size = batch_size,
      .shuffle = show.shuffle,
      .seed = show.seed,
      .use_cached = show.use_cached,
      .cache_dirs = show.cache_dirs,
      .pack = show.pack,
      .use_custom_packing_ops = show.best_fit};
  const bool has_inputs = data::find_length(config.task_feature_lengths, "inputs").has_value();
  const std::string by_default = has_inputs ? "EncDecFeatureConverter" : "LMFeatureConverter";
  data::BatchOptions options;
  if (epochs > 0) options.epochs = epochs;
  data::Batches batches(task, config,
                        data::make_feature_converter(converter.empty() ? by_default : converter,
                                                     data::converter_options(config)),
                        options);
  send_batches(batches, file);
}

}  // namespace quintet
