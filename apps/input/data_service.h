#pragma once
// Where a training run's batches come from: threads of this process, those of all training ranks,
// which share the work, or the last ranks of an MPI job.
//
//   DataService service(flags, ranks.session());
//   if (service.serves()) return service.serve(*provider, dataset, converter);
//   TrainLoop loop(config, ranks, provider_of, service.source());

#include <functional>
#include <memory>
#include <optional>

#include "data/service/client.h"
#include "data/service/peer_chunks.h"
#include "runtime/mesh/collectives/collectives.h"
#include "runtime/mpi/session.h"

namespace CLI {
class App;
}

namespace quintet {

struct DataServiceFlags {
  int ranks = 0;         // data ranks
  int threads = 0;       // that preprocess, in this process or in a data rank; 0: by the machine
  double timeout = 300;  // seconds

  void add_to(CLI::App& app);
};

/// Makes the source of a data shard's rows of a run's training batches, which the ranks of `same_rows`
/// all get. The provider outlives it.
using BatchSourceFn = std::function<std::unique_ptr<data::BatchSource>(
    const data::Provider&, const data::DatasetConfig&, data::FeatureConverterPtr,
    const data::Shard&, const Group& same_rows)>;

class DataService {
 public:
  /// Throws a usage error unless there are more ranks than data ranks.
  DataService(const DataServiceFlags& flags, const mpi::Session& session);
  /// Whether this rank is a data rank.
  bool serves() const;
  /// Works as a data rank until the run ends.
  void serve(const data::Provider& provider, const data::DatasetConfig& config,
             data::FeatureConverterPtr converter);
  /// For a training rank; lives as long as this object.
  BatchSourceFn source();

 private:
  data::ServiceRanks ranks() const;

  DataServiceFlags flags_;
  const mpi::Session& session_;
  std::optional<data::Mailbox> mail_;
};

}  // namespace quintet
