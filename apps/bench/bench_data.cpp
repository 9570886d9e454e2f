// `quintet bench data`: from text, TFRecords or an offline cache to packed batches, on one core; under mpirun by data
// ranks, which send them to the first rank.

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/bench/bench.h"
#include "apps/flags/command_line.h"
#include "apps/flags/result_format.h"
#include "data/batches/batches.h"
#include "data/cache/cache_writer.h"
#include "data/examples/random.h"
#include "data/examples/tf_example.h"
#include "data/preprocessors/denoise.h"
#include "data/preprocessors/text_preprocessors.h"
#include "data/preprocessors/token_preprocessors.h"
#include "data/service/client.h"
#include "data/tokenizer/tokenizer_trainer.h"
#include "runtime/base/clock.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/tfrecord.h"
#include "runtime/mpi/session.h"

namespace quintet {
namespace {

using namespace quintet::data;  // every name here is of that folder

struct Options {
  std::string input, model, source = "text", objective = "spans", folder;
  int64_t inputs = 512, targets = 0, batch = 128, resume_steps = 0;
  int64_t shuffle_buffer_size = Task::kShuffleBufferSize;
  int64_t virtual_shards = 1;
  double seconds = 5;
  bool pack = true, prepare = false;
  ResultFormat format;
  bool is_lm() const { return objective == "lm"; }
  std::vector<std::string> features() const {
    return is_lm() ? std::vector<std::string>{"decoder_target_tokens"}
                   : std::vector<std::string>{"encoder_input_tokens", "decoder_target_tokens"};
  }
};

/// A folder that is removed with all it holds.
struct TemporaryFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("quintet-bench-{}", ::getpid());
  TemporaryFolder() { std::filesystem::create_directories(path); }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

/// Lines of made-up words with Zipf's frequencies, the same on every machine.
std::string made_up_text(int64_t lines, uint32_t file) {
  constexpr int64_t kWords = 5000;
  Random random(key_from_seed(17));
  const auto syllable = [&] {
    return std::string{"bdfgklmnprstvz"[random.below(14)], "aeiou"[random.below(5)]};
  };
  std::vector<std::string> words;
  for (int64_t i = 0; i < kWords; ++i) {
    std::string word = syllable();
    for (int64_t more = random.below(4); more > 0; --more) word += syllable();
    words.push_back(std::move(word));
  }
  random = Random(fold_in(key_from_seed(18), file));  // the same words in other lines
  std::string text;
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t n = 20 + random.below(60); n > 0; --n) {
      const double rank = std::pow(static_cast<double>(kWords), random.uniform());
      text += words[static_cast<size_t>(rank) % words.size()] + (n == 1 ? ".\n" : " ");
    }
  }
  return text;
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Examples in the rows of a batch: the segments, or the rows where they are padded.
int64_t examples_in(const Batch& batch) {
  const auto segments = batch.features.find("decoder_segment_ids");
  if (segments == batch.features.end()) return batch.rows;
  const auto ids = segments->second.as<int32_t>();
  const size_t length =
      ids.size() / static_cast<size_t>(std::max<int64_t>(1, segments->second.shape[0]));
  int64_t examples = 0;
  for (size_t row = 0; row + length <= ids.size(); row += length)
    examples += *std::max_element(ids.begin() + static_cast<std::ptrdiff_t>(row),
                                  ids.begin() + static_cast<std::ptrdiff_t>(row + length));
  return examples;
}

/// Trains a small model unless one is named.
VocabularyPtr open_vocabulary(const Options& options) {
  constexpr int32_t kExtraIds = 100;
  if (options.model == "byte") return std::make_shared<ByteVocabulary>(kExtraIds);
  std::string model = options.model;
  if (model.empty()) {
    model = options.folder + "/bench.model";
    if (!std::filesystem::exists(model)) {
      TokenizerOptions training{.inputs = {options.input}, .vocab_size = 3000};
      training.input_sentence_size = 20'000;
      train_tokenizer(training, options.folder + "/bench");
    }
  }
  return std::make_shared<SentencePieceVocabulary>(model, kExtraIds);
}

std::shared_ptr<const Task> make_task(const Options& options, const VocabularyPtr& vocabulary) {
  auto rekey = std::make_shared<Rekey>();
  rekey->key_map = {{"inputs", ""}, {"targets", "text"}};
  if (options.is_lm()) rekey->key_map = {{"targets", "text"}};
  auto tokenize = std::make_shared<Tokenize>();
  tokenize->copy_pretokenized = false;
  std::vector<PreprocessorPtr> steps = {rekey, tokenize,
                                        std::make_shared<CacheDatasetPlaceholder>()};
  if (!options.is_lm()) steps.push_back(std::make_shared<SpanCorruption>());
  steps.push_back(std::make_shared<AppendEosAfterTrim>());
  Features features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}};
  if (options.is_lm()) features.erase(features.begin());
  DataSourcePtr source =
      std::make_shared<TextLineDataSource>(SplitToFiles{{"train", {options.input}}});
  if (options.source == "tfrecord")
    source = std::make_shared<TFExampleDataSource>(
        SplitToFiles{{"train", {options.folder + "/text.tfrecord-*"}}},
        std::vector<FeatureSpec>{{"text", "string", {}}});
  return std::make_shared<Task>(Task::Config{.name = "bench",
                                             .source = std::move(source),
                                             .preprocessors = std::move(steps),
                                             .output_features = std::move(features),
                                             .shuffle_buffer_size = options.shuffle_buffer_size});
}

/// The folder that we and peers measure on: text-*.txt, text.tfrecord-*, bench.model, cache/bench.
void prepare(const Options& options) {
  constexpr int64_t kFiles = 4, kLines = 40'000;
  for (int64_t i = 0; i < kFiles; ++i)
    atomic_write_file(fmt::format("{}/text-{}.txt", options.folder, i),
                      made_up_text(kLines, static_cast<uint32_t>(i)));
  const auto task = make_task(options, open_vocabulary(options));
  const auto reader = task->config().source->open("train");
  std::vector<std::string> files(kFiles);
  Example example;
  for (int64_t i = 0; i < *reader->size(); ++i, example.clear()) {
    reader->read(i, example);
    append_tfrecord(files[static_cast<size_t>(i % kFiles)], serialize_tf_example(example));
  }
  for (int64_t i = 0; i < kFiles; ++i)
    atomic_write_file(fmt::format("{}/text.tfrecord-{:05}-of-{:05}", options.folder, i, kFiles),
                      files[static_cast<size_t>(i)]);
  const std::filesystem::path cache = options.folder + "/cache";
  remove_tree(cache);
  write_cache(*task, {.output_cache_dir = cache.string(), .min_shards = 16, .threads = 2});
}

DatasetConfig config_of(const Options& options) {
  DatasetConfig config{.mixture_or_task_name = "bench",
                       .task_feature_lengths = {{"targets", options.targets}},
                       .batch_size = options.batch,
                       .shuffle = true,
                       .seed = 1,
                       .use_cached = options.source == "cached",
                       .cache_dirs = {options.folder + "/cache"},
                       .pack = options.pack,
                       .virtual_shards = options.virtual_shards};
  if (!options.is_lm())
    config.task_feature_lengths.insert(config.task_feature_lengths.begin(),
                                       {"inputs", options.inputs});
  return config;
}

FeatureConverterPtr converter_of(const DatasetConfig& config, bool is_lm) {
  return make_feature_converter(is_lm ? "LMFeatureConverter" : "EncDecFeatureConverter",
                                converter_options(config));
}

Batches open_batches(const Task& task, const DatasetConfig& config, bool is_lm) {
  return Batches(task, config, converter_of(config, is_lm), {.prefetch = 0});
}

/// Seconds from nothing to the first batch after `steps` batches.
double time_of_resuming(const Options& options, const std::shared_ptr<const Task>& task) {
  DatasetConfig config = config_of(options);
  config.batch_size = 1;
  std::string position;
  {
    Batches batches = open_batches(*task, config, options.is_lm());
    for (int64_t step = 0; step < options.resume_steps; ++step) batches.next();
    position = batches.position();
  }
  const auto start = Clock::now();
  Batches batches = open_batches(*task, config, options.is_lm());
  batches.restore(position);
  batches.next();
  return seconds_since(start);
}

/// False: help was printed.
bool parse(std::span<char* const> args, Options& options) {
  bool padded = false;
  CommandLine cli(
      "bench data", "Times reading, tokenizing, span corruption and packing on one core.",
      "quintet bench data\nquintet bench data --input='docs/*.txt' --vocabulary=docs.model\n"
      "quintet bench data --prepare --folder=/tmp/b\n"
      "quintet bench data --folder=/tmp/b --source=cached\n"
      "mpirun -n 3 quintet bench data --folder=/tmp/b --virtual_shards=8");
  CLI::App& app = cli.app();
  app.add_option("--input", options.input, "text files; default: generated text");
  app.add_option("--vocabulary", options.model, "a .model file, or 'byte'; default: trained here");
  app.add_option("--folder", options.folder,
                 "folder that --prepare has filled; default: a temporary one");
  app.add_flag("--prepare", options.prepare, "write text, TFRecords, model and cache, and exit");
  app.add_option("--source", options.source, "source of the examples in --folder")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "tfrecord", "cached"}));
  app.add_option("--objective", options.objective, "spans (span corruption), or lm: targets only")
      ->capture_default_str()
      ->check(CLI::IsMember({"spans", "lm"}));
  app.add_option("--inputs", options.inputs, "length of inputs")->capture_default_str();
  app.add_option("--targets", options.targets, "length of targets; default: 114, lm: 512");
  app.add_option("--batch", options.batch, "rows per batch")->capture_default_str();
  app.add_option("--shuffle_buffer_size", options.shuffle_buffer_size,
                 "examples held to shuffle the pieces of documents; 1: none")
      ->capture_default_str();
  app.add_option("--virtual_shards", options.virtual_shards,
                 "parts of the examples that are packed each for itself")
      ->capture_default_str();
  app.add_option("--seconds", options.seconds,
                 "seconds of CPU time to measure; of data ranks, by the clock")
      ->capture_default_str();
  app.add_option("--resume_steps", options.resume_steps,
                 "time resuming from a position so many one-row batches in");
  app.add_flag("--no_pack", padded, "pad rows instead of packing");
  options.format.add_to(app);
  if (!cli.parse(args)) return false;
  options.pack = !padded;
  if (options.targets == 0) options.targets = options.is_lm() ? 512 : 114;
  QT_CHECK(!options.folder.empty() || (options.source == "text" && !options.prepare),
           "quintet bench data: --source={} and --prepare need --folder=DIR", options.source);
  return true;
}

struct Counts {
  int64_t rows = 0, tokens = 0, examples = 0;

  void add(const Batch& batch, const Options& options) {
    rows += batch.rows;
    for (const std::string& name : options.features())
      for (int32_t id : batch.features.at(name).as<int32_t>()) tokens += id != 0;
    examples += examples_in(batch);
  }
};

/// The first rank takes what the others, data ranks, send.
void measure_data_ranks(const Options& options, const mpi::Session& session) {
  const VocabularyPtr vocabulary = open_vocabulary(options);
  const auto task = make_task(options, vocabulary);
  const DatasetConfig config = config_of(options);
  Mailbox mail;
  const ServiceRanks ranks{1, session.size() - 1};
  if (session.rank() > 0)
    return serve_batches(mail, ranks, session.rank() - 1, *task, config,
                         converter_of(config, options.is_lm()), session.hosts(), 1);
  ServiceClient client(mail, {.data_ranks = ranks, .seed = *config.seed}, session.hosts());
  // What was made ahead, and a batch of each part, whose stream then has filled its buffers.
  for (int64_t i = 0; i < std::max<int64_t>(4 * ranks.count, options.virtual_shards); ++i)
    client.next();
  Counts counts;
  double seconds = 0;
  for (const auto start = Clock::now(); (seconds = seconds_since(start)) < options.seconds;)
    counts.add(*client.next(), options);
  const double tokens = static_cast<double>(counts.tokens) / seconds;
  const nlohmann::ordered_json json = {{"bench", "data"},
                                       {"source", options.source},
                                       {"data_ranks", ranks.count},
                                       {"virtual_shards", options.virtual_shards},
                                       {"tokens_per_second", tokens},
                                       {"wall_seconds", seconds}};
  options.format.print_object(json.dump());
  options.format.print_text(fmt::format("{} data ranks, {} virtual shards: {:.0f} tokens/s\n",
                                        ranks.count, options.virtual_shards, tokens));
}

/// Prints what `options.seconds` of reading batches come to.
void measure(const Options& options) {
  const VocabularyPtr vocabulary = open_vocabulary(options);
  const auto task = make_task(options, vocabulary);
  Batches batches = open_batches(*task, config_of(options), options.is_lm());
  // Streams of all parts open files and fill their buffers.
  for (int64_t i = 0; i < options.virtual_shards; ++i) batches.next();
  const double start = thread_seconds();
  const auto wall_start = Clock::now();
  Counts counts;
  double seconds = 0;
  while ((seconds = thread_seconds() - start) < options.seconds)
    counts.add(*batches.next(), options);
  const auto& [rows, tokens, examples] = counts;
  const double wall = seconds_since(wall_start);
  nlohmann::ordered_json json = {{"bench", "data"},
                                 {"source", options.source},
                                 {"objective", options.objective},
                                 {"examples_per_second", static_cast<double>(examples) / seconds},
                                 {"tokens_per_second", static_cast<double>(tokens) / seconds},
                                 {"rows_per_second", static_cast<double>(rows) / seconds},
                                 {"cpu_seconds", seconds},
                                 {"wall_seconds", wall},
                                 {"inputs", options.is_lm() ? 0 : options.inputs},
                                 {"targets", options.targets},
                                 {"packed", options.pack},
                                 {"shuffle_buffer_size", options.shuffle_buffer_size},
                                 {"vocab_size", vocabulary->vocab_size()}};
  if (options.resume_steps > 0) {
    json["resume_steps"] = options.resume_steps;
    json["resume_seconds"] = time_of_resuming(options, task);
  }
  options.format.print_object(json.dump());
  options.format.print_text(fmt::format(
      "{} from {}: {:.0f} examples/s, {:.0f} tokens/s\n", vocabulary->description(), options.source,
      static_cast<double>(examples) / seconds, static_cast<double>(tokens) / seconds));
}

}  // namespace

int run_bench_data(std::span<char* const> args) {
  Options options;
  if (!parse(args, options)) return 0;
  const bool has_folder = !options.folder.empty();
  const mpi::Session session;
  QT_CHECK(session.size() == 1 || has_folder,
           "quintet bench data: ranks share files: name a --folder that --prepare has filled");
  const TemporaryFolder temporary;
  if (!has_folder) options.folder = temporary.path.string();
  if (options.input.empty()) options.input = options.folder + "/text-*.txt";
  if (session.size() > 1) {
    measure_data_ranks(options, session);
    return 0;
  }
  if (options.prepare) {
    make_folders(options.folder);
    prepare(options);
    return 0;
  }
  if (!has_folder) atomic_write_file(options.folder + "/text-0.txt", made_up_text(40'000, 0));
  measure(options);
  return 0;
}

}  // namespace quintet
