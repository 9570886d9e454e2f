#pragma once
// A data rank: reads, preprocesses and packs ahead, and sends each data shard its rows of every
// batch.
//
// Batch n after the start is made by data rank n mod K and sent when the shard's leader has given a
// credit for it; a batch is made while there is room for it, so that ranks that train slowly hold
// data ranks back. Every message that makes a rank wait can be late, none can be lost: there is no
// way to hang but a rank that does.

#include "data/service/mailbox.h"
#include "data/service/wire.h"

namespace quintet::data {

struct ServiceRanks {
  int first = 0;  // data rank in the job
  int count = 1;
};

/// Serves until every shard's leader has ended. `ranks` are the data ranks, `index` which of them
/// this is, `hosts` those of all ranks of the job. Errors in the data go to the training ranks, which end with them.
void serve_batches(Mailbox& mail, const ServiceRanks& ranks, int index, const Provider& provider,
                   const DatasetConfig& config, FeatureConverterPtr converter,
                   const std::vector<std::string>& hosts, int threads);

}  // namespace quintet::data
