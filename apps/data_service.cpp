#include "apps/data_service.h"

#include <CLI/CLI.hpp>
#include <csignal>

namespace quintet {

void DataServiceFlags::add_to(CLI::App& app) {
  app.add_option(
         "--data_service_ranks", ranks,
         "under mpirun: the last ranks that only read, preprocess and pack data; 0: threads")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option(
         "--data_threads", threads,
         "threads that preprocess, of this process or of each data rank; 0: a quarter of the "
         "machine's")
      ->check(CLI::Range(0, 1024));
  app.add_option("--data_timeout", timeout,
                 "seconds that a step waits for a data rank before the run ends")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
}

DataService::DataService(const DataServiceFlags& flags, const mpi::Session& session)
    : flags_(flags), session_(session) {
  if (flags_.ranks == 0) return;
  QT_CHECK(
      session_.size() > flags_.ranks,
      "--data_service_ranks={}: the job has {} rank{}; start it with mpirun -n and at least one "
      "more, which train",
      flags_.ranks, session_.size(), session_.size() == 1 ? "" : "s");
  mail_.emplace();
  if (!serves()) return;
  // The training ranks are told to stop, and tell the data ranks when they do.
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) std::signal(number, SIG_IGN);
}

data::ServiceRanks DataService::ranks() const {
  return {session_.size() - flags_.ranks, flags_.ranks};
}

bool DataService::serves() const { return flags_.ranks > 0 && session_.rank() >= ranks().first; }

void DataService::serve(const data::Provider& provider, const data::DatasetConfig& config,
                        data::FeatureConverterPtr converter) {
  data::serve_batches(*mail_, ranks(), session_.rank() - ranks().first, provider, config,
                      std::move(converter), flags_.threads);
}

BatchSourceFn DataService::source(int model_ranks) {
  return [this, model_ranks](const data::Provider& provider, const data::DatasetConfig& config,
                             data::FeatureConverterPtr converter)
             -> std::unique_ptr<data::BatchSource> {
    const int group = session_.rank() / model_ranks;
    const data::Shard shard{group, (session_.size() - flags_.ranks) / model_ranks};
    auto own = std::make_unique<data::Batches>(
        provider, config, converter,
        data::BatchOptions{.threads = flags_.threads, .shard = shard});
    if (config.start_batch > 0) own->seek(config.start_batch);
    if (flags_.ranks == 0) return own;
    data::ServiceOptions options{.data_ranks = ranks(),
                                 .shard = shard,
                                 .seed = config.seed.value_or(0),
                                 .timeout_seconds = flags_.timeout};
    for (int i = 0; i < model_ranks; ++i) options.group.push_back(group * model_ranks + i);
    auto client = std::make_unique<data::ServiceClient>(
        *mail_, std::move(options), session_.hosts(), own->model_feature_lengths());
    client->restore(own->position());
    return client;
  };
}

}  // namespace quintet
