#include "apps/input/data_flags.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "apps/flags/command_line.h"
#include "data/prepare/prepare.h"
#include "data/sources/tfds_splits.h"
#include "runtime/base/check.h"

namespace quintet {

void list_tasks(const data::TaskRegistry& tasks, const ResultFormat& format) {
  const auto all = data::splits_by_task(tasks);
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  size_t width = 0;
  for (const auto& [name, splits] : all) width = std::max(width, name.size());
  bool any_is_away = false;
  for (const auto& [name, splits] : all) {
    any_is_away = any_is_away || !splits;
    nlohmann::ordered_json object = {{"task", name}, {"splits", nullptr}};
    if (splits) object["splits"] = *splits;
    format.print_object(object.dump());
    format.print_text(fmt::format("{:<{}}{}{}\n", name, is_terminal ? width : 0,
                                  is_terminal ? "  " : "\t",
                                  splits ? fmt::format("{}", fmt::join(*splits, " ")) : "-"));
  }
  if (any_is_away && !format.is_json())
    fmt::print(
        stderr,
        "-: the task's data or vocabulary is not here (--tfds_data_dir, VOCABULARY in gin)\n");
}

void list_provenance(const data::TaskRegistry& tasks, const ResultFormat& format) {
  format.print_text("provider_name\tprovider_type\tcall_site_0\n");
  for (const auto& [name, at] : tasks.registrations()) {
    format.print_object(
        nlohmann::ordered_json{{"task", name}, {"type", at.type}, {"place", at.place}}.dump());
    format.print_text(fmt::format("{}\t{}\t{}\n", name, at.type, at.place));
  }
}

void prepare_dataset(const DataFlags& flags, const std::string& data_dir) {
  if (flags.name.empty()) {
    for (const data::ArchiveDataset& one : data::archive_datasets()) {
      flags.format.print_object(
          nlohmann::ordered_json{{"dataset", one.name()}, {"files", one.files}}.dump());
      flags.format.print_text(fmt::format("{:<22} {}\n", one.name(), one.files));
    }
    return;
  }
  QT_CHECK(!flags.from.empty(),
           "quintet data prepare {}: --from=FOLDER is missing, the folder in "
           "which its archive was unpacked",
           flags.name);
  const data::Prepared prepared =
      data::prepare(flags.name, flags.from, data::tfds_directory(data_dir));
  for (const auto& [split, examples] : prepared.examples) {
    flags.format.print_object(nlohmann::ordered_json{{"dataset", flags.name},
                                                     {"split", split},
                                                     {"examples", examples},
                                                     {"folder", prepared.folder.string()}}
                                  .dump());
    flags.format.print_text(fmt::format("{}: {} examples of {}\n", flags.name, examples, split));
  }
  flags.format.print_text(fmt::format("prepared in {}\n", prepared.folder.string()));
}

void DataFlags::add_to(CLI::App& app) {
  app.add_option("what", what,
                 "show, lengths, list, prepare, or batches: for libquintet.so, which starts this")
      ->required()
      ->check(CLI::IsMember({"show", "lengths", "list", "prepare", "batches"}));
  app.add_option("task", name,
                 "task or mixture (for show, lengths and batches); a data set of TFDS, such as "
                 "glue/cola (for prepare; without it, all that can be prepared are listed)");
  app.add_option("--from", from,
                 "for prepare: folder of the data set's unpacked archive; it is written to "
                 "--tfds_data_dir")
      ->transform(mapped_path);
  app.add_flag("--provenance", provenance, "for list: where each task and mixture is defined");
  app.add_option("--split", options.split, "split of the data set")->capture_default_str();
  app.add_option("--num", options.num, "number of examples and rows to show")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  app.add_option(
         "--task_feature_lengths", lengths,
         "name=length,..; default: %TASK_FEATURE_LENGTHS of the gin files, else 512 and 114")
      ->delimiter(',');
  app.add_flag("--shuffle", options.shuffle, "show examples in the order of training");
  app.add_option("--seed", options.seed, "seed of that order")->capture_default_str();
  app.add_flag("--no_pack", padded, "pad rows instead of packing");
  app.add_flag("--best_fit", options.best_fit,
               "pack rows by best fit (use_custom_packing_ops) instead of greedily");
  app.add_option("--most_ids", options.most_ids, "print at most so many ids of a feature")
      ->capture_default_str();
  app.add_option("--length_percentiles", length_statistics.percentiles,
                 "of the numbers of ids, for lengths: between 0 and 1, comma-separated")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--length_example_count", length_statistics.examples,
                 "examples that lengths counts, cut to --task_feature_lengths")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}));
  format.add_to(app);
  app.add_flag("--use_cached", options.use_cached,
               "of the task's offline cache in --seqio_additional_cache_dirs");
  batches.add_to(app);
}

}  // namespace quintet
