#pragma once
// What `quintet data` is told, and its list of tasks.

#include <string>
#include <vector>

#include "apps/flags/result_format.h"
#include "apps/input/batch_frames.h"
#include "data/show/length_statistics.h"
#include "data/show/show.h"

namespace quintet {

struct DataFlags {
  std::string what, name;
  std::vector<std::string> lengths;
  data::ShowOptions options;
  ResultFormat format{"text"};
  BatchFlags batches;
  data::LengthOptions length_statistics;
  bool padded = false, provenance = false;
  std::string from;  // of prepare

  void add_to(CLI::App& app);
};

/// `quintet data prepare NAME --from=FOLDER`: into `data_dir`, empty: TFDS's own.
void prepare_dataset(const DataFlags& flags, const std::string& data_dir);

/// A line for each: its splits in a column of their own on a terminal, behind a tab elsewhere.
void list_tasks(const data::TaskRegistry& tasks, const ResultFormat& format);
/// seqio's registration_provenance: a line for each, its name, type and where it is defined, behind tabs.
void list_provenance(const data::TaskRegistry& tasks, const ResultFormat& format);

}  // namespace quintet
