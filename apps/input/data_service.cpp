#include "apps/input/data_service.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <thread>

#include "apps/process/signals.h"

namespace quintet {

void DataServiceFlags::add_to(CLI::App& app) {
  app.add_option(
         "--data_service_ranks", ranks,
         "number of data ranks, which only read, preprocess and pack: the last ones; 0: none")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--data_threads", threads,
                 "preprocessing threads per process; 0: a quarter of the machine's, on a data rank "
                 "its share")
      ->check(CLI::Range(0, 1024));
  app.add_option("--data_timeout", timeout,
                 "seconds that a step waits for a data rank before the run ends")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e9));
}

DataService::DataService(const DataServiceFlags& flags, const mpi::Session& session)
    : flags_(flags), session_(session) {
  QT_CHECK(flags_.ranks == 0 || session_.size() > flags_.ranks,
           "--data_service_ranks={}: the job has {} rank{}; start it with mpirun -n and at least "
           "one more, which train",
           flags_.ranks, session_.size(), session_.size() == 1 ? "" : "s");
  if (session_.active() && session_.size() > 1) mail_.emplace();
  if (!serves()) return;
  // The training ranks are told to stop, and tell the data ranks when they do.
  for (const int number : kStopSignals) std::signal(number, SIG_IGN);
}

data::ServiceRanks DataService::ranks() const {
  return {session_.size() - flags_.ranks, flags_.ranks};
}

bool DataService::serves() const { return flags_.ranks > 0 && session_.rank() >= ranks().first; }

void DataService::serve(const data::Provider& provider, const data::DatasetConfig& config,
                        data::FeatureConverterPtr converter) {
  // A data rank has nothing else to do than what its threads do.
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  const int threads =
      flags_.threads > 0 ? flags_.threads : std::clamp(processors / session_.local_size(), 1, 16);
  data::serve_batches(*mail_, ranks(), session_.rank() - ranks().first, provider, config,
                      std::move(converter), session_.hosts(), threads);
}

BatchSourceFn DataService::source() {
  return [this](const data::Provider& provider, const data::DatasetConfig& config,
                data::FeatureConverterPtr converter, const data::Shard& shard,
                const Group& same_rows) -> std::unique_ptr<data::BatchSource> {
    data::BatchOptions batch_options{
        .threads = flags_.threads, .shard = shard, .timeout_seconds = flags_.timeout};
    auto own = std::make_unique<data::Batches>(provider, config, converter, batch_options);
    if (config.start_batch > 0) own->seek(config.start_batch);
    if (!mail_) return own;
    const std::string begin = own->position();
    if (flags_.ranks == 0) {
      batch_options.runner = std::make_shared<data::PeerChunks>(
          *mail_, session_.size(), session_.rank(), session_.hosts(),
          data::reader_threads(flags_.threads));
      auto batches = std::make_unique<data::Batches>(provider, config, converter, batch_options);
      batches->restore(begin);
      return batches;
    }
    data::ServiceOptions options{.data_ranks = ranks(),
                                 .shard = shard,
                                 .seed = config.seed.value_or(0),
                                 .timeout_seconds = flags_.timeout};
    options.group = same_rows.ranks();
    auto client =
        std::make_unique<data::ServiceClient>(*mail_, std::move(options), session_.hosts());
    client->restore(begin);
    return client;
  };
}

}  // namespace quintet
