#pragma once
// Under mpirun every rank reads data and vocabularies by itself, from disks that may be its host's
// own: before anything is read for training, all look whether they have the same (row D3 of the
// fault table).
//
//   agree_on_data(ranks, *config.model, {{"train", provider, set}});

#include <string>
#include <vector>

#include "apps/process/ranks.h"
#include "data/batches.h"
#include "models/configurables.h"

namespace quintet {

/// A data set that ranks read, under the name that messages use.
struct SharedData {
  std::string name;
  data::ProviderPtr provider;
  data::DatasetConfig dataset;
};

/// Throws a usage error on all ranks, naming two of them with their hosts, files, sizes and
/// checksums, if a vocabulary of the model or the tasks, or a file of a data set differs: in size
/// or in the bytes that data::file_fingerprints looks at. Paths may differ. All ranks call it;
/// those that serve data say so and are asked about `sets.front()` alone, which they read.
void agree_on_data(const Ranks& ranks, const ConfiguredModel& model,
                   const std::vector<SharedData>& sets, bool serves_data = false);
/// The same of all splits of tasks, which are to be cached.
void agree_on_data(const Ranks& ranks, const std::vector<const data::Task*>& tasks);

}  // namespace quintet
