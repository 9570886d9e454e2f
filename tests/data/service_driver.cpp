// A rank of the data service under mpirun, for service_test.py.
//
//   service_driver MODE DATA_RANKS MODEL [SECONDS]
//
// MODEL ranks next to each other get the same rows. Modes: same (batches compared with Batches in
// this process, bit for bit, also from a position in the middle), virtual (the same in virtual
// shards; virtual_resumed, virtual_peers), hosts_same, hosts_peers and hosts_leave (of two ranks a
// host), floats (the same, with a feature of floats of two dimensions), slow, dead, stopped (of the last data rank; of the last rank
// without data ranks), bad (data), peers (same, without data ranks), pressure (how far data ranks
// work ahead), ahead (how far ranks without data ranks do, of large examples), keep_up (what a step
// waits).
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "data/service/client.h"
#include "data/service/peer_chunks.h"
#include "data/tasks/number_words.h"
#include "runtime/mpi/session.h"

namespace quintet::data {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<int64_t> examples_read{0};
std::string mode;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void pass_time(double seconds) {
  // delay: a slow source, a step's work
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// A mixture of the built-in tasks and of numbers as bytes, of which some are dropped and some come
/// twice, so that a buffer shuffles them; with faults by mode.
ProviderPtr make_provider(bool last_data_rank) {
  struct Encode final : Preprocessor {
    StreamPtr apply(StreamPtr input, const PreprocessContext&) const override {
      return flat_map_stream(std::move(input), [](Example&& example, std::vector<Example>& out) {
        const auto number = example.index;
        for (int64_t i = 0; i < (number % 5 + 1) / 2; ++i) {
          Example piece;
          for (const char* name : {"inputs", "targets"})
            piece.set(name, ByteVocabulary().encode(std::to_string(number * number + i)));
          if (mode == "ahead")
            piece.set("large", NdArray<double>{{1, 5000}, std::vector<double>(5000)});
          piece.set("table",
                    NdArray<double>{{number % 7, 2},
                                    std::vector<double>(static_cast<size_t>(number % 7) * 2,
                                                        0.5 * static_cast<double>(number))});
          out.push_back(std::move(piece));
        }
      });
    }
  };
  const auto make = [last_data_rank](int64_t index, Example& out) {
    if (mode == "bad")
      QT_CHECK_AS(ExitCode::kData, index != 700, "numbers.tsv:701: 1 columns, expected 2");
    const int64_t read = ++examples_read;
    if (last_data_rank && read > 1000) {
      if (mode == "slow") pass_time(1000);
      if (mode == "dead") std::raise(SIGKILL);
      if (mode == "stopped") std::raise(SIGSTOP);
    }
    out.set("index", index);
  };
  const auto vocabulary = std::make_shared<ByteVocabulary>();
  const auto numbers = std::make_shared<Task>(Task::Config{
      .name = "numbers",
      .source = std::make_shared<FunctionDataSource>(
          "numbers", std::map<std::string, FunctionDataSource::Split>{{"train", {2000, make}}}),
      .preprocessors = {std::make_shared<Encode>()},
      .output_features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}}});
  if (mode == "floats") return numbers;
  TaskRegistry registry;
  register_builtin_tasks(registry);
  return std::make_shared<Mixture>(
      "mix", std::vector<Mixture::Part>{{numbers, 2.0}, {registry.get("number_words"), 1.0}});
}

FeatureConverterPtr make_converter() {
  if (mode != "floats") return make_feature_converter("EncDecFeatureConverter", {.pack = true});
  return make_feature_converter(
      "EncDecFeatureConverter",
      {.apply_length_check = false, .passthrough_features = {{"table", FeatureType::float32, 2}}});
}

DatasetConfig make_config() {
  if (mode == "floats")
    return {.mixture_or_task_name = "numbers",
            .task_feature_lengths = {{"inputs", 16}, {"targets", 16}, {"table", 4}},
            .batch_size = 8,
            .shuffle = true,
            .seed = 5};
  DatasetConfig config{.mixture_or_task_name = "mix",
                       .task_feature_lengths = {{"inputs", 96}, {"targets", 96}},
                       .batch_size = 8,
                       .shuffle = true,
                       .seed = 5,
                       .pack = true};
  if (mode.starts_with("virtual"))
    config.virtual_shards = 6;
  else
    config.skip_batches = {{3, 4}};
  return config;
}

void check(bool good, const std::string& what) {
  if (good) return;
  fmt::print(stderr, "FAILED: {}\n", what);
  mpi::Session::fail(ExitCode::kBug);
}

bool equal(const Batch& a, const Batch& b) {
  if (a.rows != b.rows || a.features.size() != b.features.size()) return false;
  for (const auto& [name, array] : a.features)
    if (const HostArray& other = b.features.at(name);
        other.bytes != array.bytes || other.shape != array.shape || other.dtype != array.dtype)
      return false;
  return true;
}

/// Two ranks a host, whatever the machine, in modes of hosts.
std::vector<std::string> hosts_of(const mpi::Session& session) {
  std::vector<std::string> hosts = session.hosts();
  for (size_t i = 0; i < hosts.size(); ++i)
    if (mode.starts_with("hosts_")) hosts[i] = fmt::format("host{}", i / 2);
  return hosts;
}

/// `count` batches from a position on, against those of this process.
std::string compare(ServiceClient& client, Batches& own, int count) {
  for (int i = 0; i < count; ++i) {
    const auto got = client.next(), want = own.next();
    check(got && want && equal(*got, *want), "batch " + std::to_string(i) + " differs");
    check(client.position() == own.position(), "positions differ: " + client.position());
  }
  return own.position();
}

void train(Mailbox& mail, const mpi::Session& session, const ServiceOptions& options,
           const Provider& provider, const FeatureConverterPtr& converter) {
  const BatchOptions batch_options{.prefetch = 0, .shard = options.shard};
  ServiceClient client(mail, options, session.hosts());
  if (mode == "same" || mode == "floats" || mode == "microbatches" || mode == "virtual" ||
      mode == "hosts_same") {
    Batches own(provider, make_config(), converter, batch_options);
    compare(client, own, 40);
  } else if (mode.ends_with("resumed")) {
    Batches first(provider, make_config(), converter);
    for (int i = 0; i < 33; ++i) first.next();
    Batches own(provider, make_config(), converter, batch_options);
    own.restore(first.position());
    client.restore(first.position());
    compare(client, own, 20);
  } else if (mode == "pressure") {
    client.next();
    pass_time(1);
  } else if (mode == "keep_up") {
    client.next();
    double waited = 0;
    for (int i = 0; i < 50; ++i) {
      pass_time(0.02);
      const auto begin = Clock::now();
      client.next();
      waited += seconds_since(begin);
    }
    fmt::print("waited {:.4f} s in 50 steps\n", waited);
  } else {
    for (int i = 0; i < 10'000; ++i) client.next();
  }
}

/// Without data ranks: this rank makes its share of the chunks and compares with a process that
/// makes all.
void train_with_peers(Mailbox& mail, const mpi::Session& session, double timeout,
                      const Provider& provider, const FeatureConverterPtr& converter) {
  const Shard shard{session.rank(), session.size()};
  const auto peers = std::make_shared<PeerChunks>(mail, session.size(), session.rank(),
                                                  hosts_of(session), mode == "ahead" ? 32 : 2);
  Batches shared(provider, make_config(), converter,
                 {.shard = shard, .runner = peers, .timeout_seconds = timeout});
  if (mode == "ahead") {
    for (int i = 0; i < 20; ++i) shared.next();
    pass_time(1);
    fmt::print("read {}\n", examples_read.load());
    return;
  }
  if (!mode.ends_with("peers")) {
    for (int i = 0; i < 10'000; ++i) shared.next();
    return;
  }
  std::vector<Batch> got;
  for (int i = 0; i < 200; ++i) got.push_back(*shared.next());
  fmt::print("read {}\n", examples_read.load());
  Batches own(provider, make_config(), converter, {.prefetch = 0, .shard = shard});
  for (size_t i = 0; i < got.size(); ++i)
    check(equal(got[i], *own.next()), "batch " + std::to_string(i) + " differs");
  check(shared.position() == own.position(), "positions differ");
}

/// Two hosts of two ranks. Rank 2 has left when a chunk that it would pass on to rank 3 comes, which
/// then has left, too: all get away.
void leave_with_a_chunk_on_its_way(Mailbox& mail, const mpi::Session& session) {
  constexpr double kLonger = 0.5, kTooLong = 10;
  struct Nowhere final : Provenance {
    std::string where(int64_t) const override { return ""; }
  } const nowhere;
  ChunkExchange exchange(mail, 0, hosts_of(session), session.rank(), 1);
  if (session.rank() == 0) {
    Example large;
    large.set("large", NdArray<double>{{1, 50'000}, std::vector<double>(50'000)});
    exchange.run(0, 0, nowhere, [&] { return WorkChunk{{large}, nullptr}; }).get();
  }
  exchange.leave();
  if (session.rank() == 2) pass_time(kLonger);
  const auto begin = Clock::now();
  while (!exchange.all_left() || !mail.empty()) {
    if (auto message = mail.poll()) exchange.receive(std::move(*message));
    check(seconds_since(begin) < kTooLong, "a chunk has nobody who takes it");
  }
}

int run(int argc, char** argv) {
  QT_CHECK(argc >= 4, "service_driver MODE DATA_RANKS MODEL [SECONDS]");
  mode = argv[1];
  const int data_ranks = std::atoi(argv[2]), model = std::atoi(argv[3]);
  mpi::Session session;
  const ServiceRanks ranks{session.size() - data_ranks, data_ranks};
  const auto converter = make_converter();
  const auto provider = make_provider(session.rank() == session.size() - 1);
  Mailbox mail;
  if (mode == "hosts_leave") {
    leave_with_a_chunk_on_its_way(mail, session);
    return 0;
  }
  if (session.rank() >= ranks.first) {
    serve_batches(mail, ranks, session.rank() - ranks.first, *provider, make_config(), converter,
                  hosts_of(session), 2);
    if (mode == "pressure") fmt::print("rank {} read {}\n", session.rank(), examples_read.load());
    return 0;
  }
  if (data_ranks == 0) {
    train_with_peers(mail, session, argc > 4 ? std::atof(argv[4]) : 60, *provider, converter);
    return 0;
  }
  const int shard = session.rank() / model;
  ServiceOptions options{.data_ranks = ranks,
                         .shard = {shard, ranks.first / model, mode == "microbatches" ? 2 : 1},
                         .seed = 5,
                         .timeout_seconds = argc > 4 ? std::atof(argv[4]) : 60,
                         .patience_seconds = 1};
  for (int i = 0; i < model; ++i) options.group.push_back(shard * model + i);
  train(mail, session, options, *provider, converter);
  return 0;
}

}  // namespace
}  // namespace quintet::data

int main(int argc, char** argv) {
  try {
    return quintet::data::run(argc, argv);
  } catch (const quintet::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    quintet::mpi::Session::fail(error.code());
  }
}
