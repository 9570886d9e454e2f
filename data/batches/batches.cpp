#include "data/batches/batches.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "data/converters/batch_rows.h"
#include "data/examples/trim.h"
#include "data/reading/batch_index.h"
#include "data/reading/position_text.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/files/cache_folder.h"
#include "runtime/base/formats/crc32c.h"
#include "runtime/base/formats/json.h"
#include "runtime/base/process/messages.h"
#include "runtime/base/thread.h"

namespace quintet::data {
namespace {

std::string lengths_text(const Lengths& lengths) {
  std::string text;
  for (const auto& [name, length] : lengths)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, length.text());
  return text;
}

const char* packing_text(const FeatureConverter& converter) {
  if (!converter.pack()) return "padded";
  return converter.packing() == Packing::best_fit ? "packed by best fit" : "packed";
}

/// Longest feature of each converter input: task_feature_lengths = None.
Lengths longest(const std::vector<Example>& examples) {
  Lengths lengths;
  for (const Example& example : examples)
    for (const auto& [name, value] : example.items())
      if (rank_of(value) > 0 && !std::holds_alternative<std::vector<std::string>>(value)) {
        const int64_t size = std::max<int64_t>(1, length_of(value));
        const auto known = std::find_if(lengths.begin(), lengths.end(),
                                        [&](const auto& item) { return item.first == name; });
        if (known == lengths.end())
          lengths.emplace_back(name, size);
        else
          known->second = std::max(known->second.first, size);
      }
  return lengths;
}

}  // namespace

namespace {

void check_no_virtual_shards(const DatasetConfig& config) {
  QT_CHECK(config.virtual_shards == 1,
           "virtual_shards is {}: an evaluation passes over its examples in order; bind it for "
           "training alone: train/utils.DatasetConfig.virtual_shards",
           config.virtual_shards);
}

void check_virtual_shards(const DatasetConfig& config, const BatchOptions& options) {
  const int64_t shards = config.virtual_shards, makers = options.batch_shard.count;
  QT_CHECK(shards > 0, "virtual_shards is {}, expected at least 1", shards);
  if (options.epochs) check_no_virtual_shards(config);
  QT_CHECK(shards == 1 || shards % makers == 0,
           "virtual_shards is {}, which {} data ranks do not divide; start a number that does",
           shards, makers);
  QT_CHECK(shards == 1 || makers == 1 || config.skip_batches.empty(),
           "skip_batches with {} virtual shards and {} data ranks: start one data rank", shards,
           makers);
}

/// Other random choices in each, for the same number of an example; of the first those without shards.
int64_t seed_of_shard(int64_t seed, int64_t shard) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  return static_cast<int64_t>(static_cast<uint64_t>(seed) + static_cast<uint64_t>(shard) * kOdd);
}

}  // namespace

std::string joined_position(const std::string& before, const std::string& of_maker,
                            int64_t makers) {
  if (before.empty() || makers == 1) return of_maker;
  auto maker = nlohmann::ordered_json::parse(of_maker);
  if (!maker.contains("streams")) return of_maker;
  const auto others = nlohmann::ordered_json::parse(before);
  const int64_t newest = maker["batches"].get<int64_t>() - 1;
  for (size_t i = 0; i < maker["streams"].size(); ++i)
    if ((static_cast<int64_t>(i) - newest) % makers != 0)
      maker["streams"][i] = others["streams"][i];
  return maker.dump();
}

ProviderPtr find_provider(const TaskRegistry& registry, const DatasetConfig& config) {
  if (config.mixture_or_task) return config.mixture_or_task;
  return registry.get(config.mixture_or_task_name);
}

ConverterOptions converter_options(const DatasetConfig& config) {
  return {.pack = config.pack,
          .packing = config.use_custom_packing_ops ? Packing::best_fit : Packing::greedy};
}

/// Streams of model features, one a virtual shard, and the thread that turns them into batches. Between
/// start() and stop() only the thread touches `streams`.
struct Batches::State {
  struct Place {  // between two batches
    std::vector<Position> streams;
    int64_t batch = 0;  // number of the next one
  };
  struct Prepared {
    std::optional<Batch> batch;  // none: the end
    std::exception_ptr error;
    Place after;
  };

  std::vector<StreamPtr> streams;
  std::shared_ptr<ChunkRunner> runner;
  std::shared_ptr<DrawnExamples> drawn = std::make_shared<DrawnExamples>();  // so far
  double timeout_seconds = 0;
  Lengths lengths;
  FeatureTypes types;  // of features that are declared
  int64_t batch_size = 0, prefetch = 0;
  Shard shard;
  std::vector<std::pair<int64_t, int64_t>> skip;
  bool strict_data = false, repeat_rows = false;
  bool any_row = false;  // since the beginning
  std::filesystem::path index_file;
  std::string identity;
  Contents contents;
  std::string files;         // fingerprint of the contents' files, once it was needed
  Place beginning, place;    // after the last batch that was handed out
  int64_t next_batch = 0;    // that make() makes
  bool batch_began = false;  // the last make_batch() found a row
  Shard batch_shard;
  int64_t batch_number = 0;  // batches since the start or restore() that were not left out

  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Prepared> prepared_batches;  // guarded by mutex
  bool stopping = false;                  // guarded by mutex

  ~State() {
    if (runner) runner->cancel();
    stop();
  }

  void set_up(std::vector<StreamPtr> model_features, const DatasetConfig& config,
              const FeatureConverter& converter, const Lengths& task_lengths,
              const BatchOptions& options) {
    QT_CHECK(config.batch_size > 0, "batch_size is {}, expected at least 1", config.batch_size);
    shard = options.shard;
    QT_CHECK(
        config.batch_size % (shard.count * shard.microbatches) == 0,
        "batch_size {} is not a multiple of the {} data shards{}; choose one that is",
        config.batch_size, shard.count,
        shard.microbatches > 1 ? fmt::format(" times {} microbatches", shard.microbatches) : "");
    streams = std::move(model_features);
    lengths = converter.model_feature_lengths(task_lengths);
    batch_size = config.batch_size;
    prefetch = options.prefetch;
    batch_shard = options.batch_shard;
    timeout_seconds = options.timeout_seconds;
    skip = config.skip_batches;
    strict_data = config.strict_data;
    repeat_rows = options.repeat_rows;
    index_file = options.index_file;
    identity = fmt::format("{} {} {} {}{}{}", config.mixture_or_task_name, config.split,
                           lengths_text(task_lengths), packing_text(converter),
                           config.shuffle ? " shuffled" : "",
                           config.seed ? fmt::format(" seed {}", *config.seed) : "");
    if (streams.size() > 1) identity += fmt::format(" in {} virtual shards", streams.size());
    beginning.streams = saved_streams();
    place = beginning;
  }

  /// The stream that batch number `batch` is of.
  Stream& stream_of_batch(int64_t batch) {
    return *streams[static_cast<size_t>(batch) % streams.size()];
  }

  std::vector<Position> saved_streams() const {
    std::vector<Position> positions(streams.size());
    for (size_t i = 0; i < streams.size(); ++i) streams[i]->save(positions[i]);
    return positions;
  }

  std::string position() {
    nlohmann::ordered_json json = {{"data", identity},
                                   {"batch_size", batch_size},
                                   {"batches", place.batch},
                                   {"examples", contents.examples},
                                   {"files", fingerprint_now()}};
    if (place.streams.size() == 1)
      json["stream"] = position_text(place.streams.front());
    else
      for (const Position& stream : place.streams) json["streams"].push_back(position_text(stream));
    return json.dump();
  }

  void go_to(Place to) {
    stop();
    for (size_t i = 0; i < streams.size(); ++i) {
      PositionReader reader(to.streams[i]);
      streams[i]->restore(reader);
      QT_CHECK_AS(
          ExitCode::kData, reader.done(),
          "data position has more numbers than this data set; the task's preprocessors changed");
    }
    place = std::move(to);
    next_batch = place.batch;
    batch_number = 0;
  }

  /// Over the batches before number `batch`.
  void pass_to(int64_t batch, BatchIndex& index) {
    while (next_batch < batch) {
      batch_began = false;
      make_batch(next_batch, false);
      QT_CHECK_AS(ExitCode::kData, batch_began, "{}: the data ends at batch {}, before batch {}",
                  identity, next_batch, batch);
      place.batch = ++next_batch;
      if (!index.due(next_batch) && next_batch < batch) continue;
      place.streams = saved_streams();
      index.add(next_batch, position());
    }
  }

  const std::string& fingerprint_now() {
    if (files.empty()) files = fingerprint(contents.files);
    return files;
  }

  /// Row I3 of the fault table.
  void check_contents(int64_t examples, const std::string& fingerprint_then) {
    QT_CHECK_AS(
        ExitCode::kData, contents.examples == examples,
        "{}: holds {} examples now, {} when the data position was saved; bring back the data "
        "as it was, or start the data anew",
        identity, contents.examples, examples);
    if (fingerprint_now() == fingerprint_then) return;
    const bool names = files.substr(0, 8) != fingerprint_then.substr(0, 8);
    const std::string message = fmt::format(
        "{}: the {} of its {} files ({}, ..) have changed since the data position was saved",
        identity, names ? "names or sizes" : "contents", contents.files.size(),
        contents.files.empty() ? "none" : contents.files.front());
    QT_CHECK_AS(ExitCode::kData, !strict_data,
                "{}; bring back the files, or go on without --strict_data", message);
    print_warning("{}; going on with them as they are", message);
  }

  bool must_stop() {
    const std::lock_guard lock(mutex);
    return stopping;
  }

  bool skipped(int64_t batch) const {
    return std::any_of(skip.begin(), skip.end(), [&](const auto& range) {
      return range.first <= batch && batch <= range.second;
    });
  }

  /// The next row of the stream, from its beginning again if rows repeat.
  bool next_row(Stream& stream, Example& row) {
    if (stream.next(row)) return any_row = true;
    if (!repeat_rows || !any_row) return false;
    PositionReader reader(beginning.streams.front());
    stream.restore(reader);
    return stream.next(row);
  }

  /// Batch number `number`, the next of its stream; without `keep` its rows are passed over.
  Batch make_batch(int64_t number, bool keep) {
    Batch batch;
    Example example;
    Stream& stream = stream_of_batch(number);
    const DrawnExamples before = *drawn;
    const int64_t run = shard.run(batch_size);
    for (int64_t row = 0; row < batch_size && !must_stop() && next_row(stream, example); ++row) {
      if (row == 0 && keep)
        batch.features = arrays_for(example, lengths, run * shard.microbatches, types);
      const bool own = row / run % shard.count == shard.index;
      const int64_t microbatch = row / run / shard.count;
      if (own && keep) copy_row(example, microbatch * run + row % run, batch.features);
      batch.rows += own;
      batch_began = true;
    }
    batch.drawn = *drawn;
    for (auto& [task, count] : batch.drawn) count -= before.at(task);
    return batch;
  }

  Prepared make() {
    Prepared prepared;
    try {
      do {
        batch_began = false;
        const int64_t number = next_batch++;
        const bool own = !skipped(number);
        const bool keep = own && batch_number % batch_shard.count == batch_shard.index;
        batch_number += own;
        const bool is_others = !keep && batch_shard.count > 1 && streams.size() > 1;
        if (is_others) {  // so is its stream
          batch_began = true;
          continue;
        }
        Batch batch = make_batch(number, keep);
        if (batch_began && keep) prepared.batch = std::move(batch);
      } while (batch_began && !prepared.batch && !must_stop());
      prepared.after.streams = saved_streams();
      prepared.after.batch = next_batch;
    } catch (...) {
      prepared.error = std::current_exception();
    }
    return prepared;
  }

  void run() {
    while (true) {
      Prepared next = make();
      const bool last = !next.batch.has_value();
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] {
        return stopping || static_cast<int64_t>(prepared_batches.size()) < prefetch;
      });
      if (stopping) return;
      prepared_batches.push_back(std::move(next));
      changed.notify_all();
      if (last) return;
    }
  }

  void start() {
    if (prefetch > 0 && !thread.joinable())
      thread = start_thread("to make batches", [this] { run(); });
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    if (thread.joinable()) thread.join();
    stopping = false;
    prepared_batches.clear();
  }

  /// Says which process, if another one, is waited for, and does not wait for ever.
  void wait_for_batch(std::unique_lock<std::mutex>& lock) {
    constexpr double kPatience = 10;  // seconds
    const auto begin = Clock::now();
    const auto after = [&](double seconds) {
      return begin + std::chrono::duration_cast<std::chrono::nanoseconds>(
                         std::chrono::duration<double>(seconds));
    };
    for (double until = std::min(kPatience, timeout_seconds);
         !changed.wait_until(lock, after(until), [&] { return !prepared_batches.empty(); });
         until += std::min(kPatience, timeout_seconds)) {
      const std::string who = runner ? runner->held_up_by() : "";
      if (who.empty()) continue;
      QT_CHECK_AS(ExitCode::kPeer, until < timeout_seconds,
                  "{} has sent nothing of its share of the data for {:.0f} s (--data_timeout): it "
                  "hangs, is lost, or cannot keep up; look at its messages",
                  who, until);
      fmt::print(stderr, "waiting for data from {}: {:.0f} s\n", who, until);
    }
  }

  std::optional<Batch> next() {
    start();
    Prepared taken;
    if (prefetch > 0) {
      std::unique_lock lock(mutex);
      wait_for_batch(lock);
      Prepared& front = prepared_batches.front();
      if (front.error) std::rethrow_exception(front.error);
      if (!front.batch) return std::nullopt;  // stays in the queue: the end is the end
      taken = std::move(front);
      prepared_batches.pop_front();
      changed.notify_all();
    } else {
      taken = make();
      if (taken.error) std::rethrow_exception(taken.error);
      if (!taken.batch) return std::nullopt;
    }
    place = std::move(taken.after);
    return std::move(taken.batch);
  }
};

Batches::Batches(const Provider& provider, const DatasetConfig& config,
                 FeatureConverterPtr converter, BatchOptions options)
    : state_(std::make_unique<State>()) {
  QT_CHECK(!config.task_feature_lengths.empty(), "task_feature_lengths is required for training");
  // Checked before any file is opened.
  converter->model_feature_lengths(config.task_feature_lengths);
  std::shared_ptr<ChunkRunner> runner = options.runner;
  if (!runner && options.prefetch > 0)
    runner = std::make_shared<ChunkThreads>(reader_threads(options.threads));
  const int64_t shards = config.virtual_shards;
  check_virtual_shards(config, options);
  StreamOptions how{.split = config.split,
                    .sequence_length = config.task_feature_lengths,
                    .shuffle = config.shuffle,
                    .epochs = options.epochs,
                    .trim_output_features = config.trim_output_features,
                    .use_cached = config.use_cached,
                    .cache_dirs = config.cache_dirs,
                    .on_bad_example = config.on_bad_example,
                    .runner = runner,
                    .drawn = options.epochs ? nullptr : state_->drawn};
  state_->contents = provider.contents(how);
  how.share = 1.0 / static_cast<double>(std::max<int64_t>(shards / options.batch_shard.count, 1));
  std::vector<StreamPtr> streams;
  for (int64_t i = 0; i < shards; ++i) {
    how.shard_info = {i, shards};
    how.seed = seed_of_shard(config.seed.value_or(0), i);
    streams.push_back(converter->convert(provider.stream(how), config.task_feature_lengths));
  }
  state_->set_up(std::move(streams), config, *converter, config.task_feature_lengths, options);
  state_->types = converter->types(provider.output_features());
  state_->runner = std::move(runner);
}

Batches::Batches(std::vector<Example> examples, const DatasetConfig& config,
                 FeatureConverterPtr converter)
    : state_(std::make_unique<State>()) {
  Lengths lengths = config.task_feature_lengths;
  if (lengths.empty()) lengths = converter->used_lengths(longest(examples));
  std::vector<StreamPtr> stream;
  stream.push_back(converter->convert(stream_of(std::move(examples)), lengths));
  state_->set_up(std::move(stream), config, *converter, lengths, {.prefetch = 0});
}

Batches::~Batches() = default;
Batches::Batches(Batches&&) noexcept = default;
Batches& Batches::operator=(Batches&&) noexcept = default;

std::optional<Batch> Batches::next() { return state_->next(); }

const Lengths& Batches::model_feature_lengths() const { return state_->lengths; }

/// In the user's cache folder; empty if there is none.
std::filesystem::path default_index_file(const std::string& identity) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return {};
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  return folder / fmt::format("batches_{:08x}.jsonl", crc32c(identity));
}

std::string Batches::position() const { return state_->position(); }

void Batches::restore(std::string_view text) {
  const Json json = Json::parse(text, "data position");
  const std::string identity = json["data"].as_string();
  QT_CHECK_AS(ExitCode::kData, identity == state_->identity,
              "the saved data position is of '{}', this run reads '{}'; use the same task, split, "
              "lengths, packing, shuffling and seed, or start with a new model directory",
              identity, state_->identity);
  state_->check_contents(json["examples"].as_int(), json["files"].as_string());
  std::vector<Position> streams;
  if (json.has("stream")) streams.push_back(position_from_text(json["stream"].as_string()));
  if (json.has("streams"))
    for (const std::string& text_of_one : json["streams"].as_strings())
      streams.push_back(position_from_text(text_of_one));
  QT_CHECK_AS(ExitCode::kData, streams.size() == state_->streams.size(),
              "data position: places of {} virtual shards, expected {}", streams.size(),
              state_->streams.size());
  state_->go_to({std::move(streams), json["batches"].as_int()});
}

void Batches::seek(int64_t batch) {
  BatchIndex index(state_->index_file.empty() ? default_index_file(state_->identity)
                                              : state_->index_file);
  state_->go_to(state_->beginning);
  const std::string near = index.before(batch, state_->position());
  if (!near.empty()) restore(near);
  state_->pass_to(batch, index);
}

std::vector<std::pair<int64_t, int64_t>> parse_batch_ranges(const std::string& text) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  const auto wrong = [&] {
    fail(ExitCode::kUsage,
         "skip_batches: expected batch numbers and ranges such as '120-140,200', found '{}'", text);
  };
  const auto number = [&](std::string_view digits) {
    const size_t first = digits.find_first_not_of(' '), last = digits.find_last_not_of(' ');
    if (first == std::string_view::npos) wrong();
    digits = digits.substr(first, last + 1 - first);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value);
    if (error != std::errc() || end != digits.end() || value < 0) wrong();
    return value;
  };
  if (text.find_first_not_of(' ') == std::string::npos) return ranges;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    const std::string_view item(text.data() + start, end - start);
    const size_t dash = item.find('-');
    const int64_t first = number(item.substr(0, dash));
    const int64_t last = dash == std::string_view::npos ? first : number(item.substr(dash + 1));
    if (first > last) wrong();
    ranges.emplace_back(first, last);
    start = end + 1;
  }
  return ranges;
}

StreamPtr evaluation_stream(const Provider& provider, const DatasetConfig& config,
                            const ShardInfo& shard, std::shared_ptr<ChunkRunner> runner) {
  check_no_virtual_shards(config);
  if (!runner) runner = std::make_shared<ChunkThreads>(reader_threads(0));
  StreamOptions options{.split = config.split,
                        .shuffle = config.shuffle,
                        .seed = config.seed.value_or(0),
                        .epochs = 1,
                        .trim_output_features = config.trim_output_features,
                        .use_cached = config.use_cached,
                        .cache_dirs = config.cache_dirs,
                        .shard_info = shard,
                        .on_bad_example = config.on_bad_example,
                        .runner = std::move(runner)};
  if (!config.task_feature_lengths.empty()) options.sequence_length = config.task_feature_lengths;
  return provider.stream(options);
}

std::vector<Example> evaluation_examples(const Provider& provider, const DatasetConfig& config,
                                         std::optional<int64_t> limit) {
  const StreamPtr stream = evaluation_stream(provider, config);
  std::vector<Example> examples;
  Example example;
  while ((!limit || static_cast<int64_t>(examples.size()) < *limit) && stream->next(example)) {
    example.provenance = nullptr;  // which ends with the stream
    examples.push_back(std::move(example));
  }
  QT_CHECK_AS(ExitCode::kData, !examples.empty(), "'{}' has no example in split '{}' to evaluate",
              provider.name(), config.split);
  return examples;
}

}  // namespace quintet::data
