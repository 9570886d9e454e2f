#include "data/batches.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/json.h"

namespace quintet::data {
namespace {

std::string lengths_text(const Lengths& lengths) {
  std::string text;
  for (const auto& [name, length] : lengths)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, length);
  return text;
}

/// Model features copied into row `row` of arrays that were made for them.
void copy_row(const Example& example, const Lengths& lengths, int64_t row, HostArrays& arrays) {
  for (const auto& [name, length] : lengths) {
    const Tokens& tokens = example.tokens(name);
    QT_ASSERT(static_cast<int64_t>(tokens.size()) == length);
    std::copy(tokens.begin(), tokens.end(), arrays.at(name).as<int32_t>().begin() + row * length);
  }
}

/// Longest feature of each converter input: task_feature_lengths = None.
Lengths longest(const std::vector<Example>& examples) {
  Lengths lengths;
  for (const Example& example : examples)
    for (const auto& [name, value] : example.items())
      if (const auto* tokens = std::get_if<Tokens>(&value)) {
        const auto size = std::max<int64_t>(1, static_cast<int64_t>(tokens->size()));
        const auto known = std::find_if(lengths.begin(), lengths.end(),
                                        [&](const auto& item) { return item.first == name; });
        if (known == lengths.end())
          lengths.emplace_back(name, size);
        else
          known->second = std::max(known->second, size);
      }
  return lengths;
}

}  // namespace

ProviderPtr find_provider(const TaskRegistry& registry, const DatasetConfig& config) {
  if (config.mixture_or_task) return config.mixture_or_task;
  return registry.get(config.mixture_or_task_name);
}

/// The stream of model features, and the thread that turns it into batches. Between start() and
/// stop() only the thread touches `stream`.
struct Batches::State {
  struct Made {
    std::optional<Batch> batch;  // none: the end
    std::exception_ptr error;
    Position after;
  };

  StreamPtr stream;
  Lengths lengths;
  int64_t batch_size = 0, prefetch = 0;
  std::string identity;
  Position position;  // after the last batch that was handed out
  int64_t batches = 0;

  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Made> made;  // guarded by mutex
  bool stopping = false;  // guarded by mutex

  ~State() { stop(); }

  void set_up(StreamPtr model_features, const DatasetConfig& config,
              const FeatureConverter& converter, const Lengths& task_lengths, int64_t ahead) {
    QT_CHECK(config.batch_size > 0, "batch_size is {}, expected at least 1", config.batch_size);
    stream = std::move(model_features);
    lengths = converter.model_feature_lengths(task_lengths);
    batch_size = config.batch_size;
    prefetch = ahead;
    identity = fmt::format("{} {} {} {}{}{}", config.mixture_or_task_name, config.split,
                           lengths_text(task_lengths), converter.pack() ? "packed" : "padded",
                           config.shuffle ? " shuffled" : "",
                           config.seed ? fmt::format(" seed {}", *config.seed) : "");
    stream->save(position);
  }

  bool must_stop() {
    const std::lock_guard lock(mutex);
    return stopping;
  }

  Made make() {
    Made made_now;
    try {
      Batch batch;
      Example example;
      while (batch.rows < batch_size && !must_stop() && stream->next(example)) {
        if (batch.rows == 0)
          for (const auto& [name, length] : lengths)
            batch.features.emplace(name, HostArray(DType::i32, {batch_size, length}));
        copy_row(example, lengths, batch.rows++, batch.features);
      }
      if (batch.rows > 0) made_now.batch = std::move(batch);
      stream->save(made_now.after);
    } catch (...) {
      made_now.error = std::current_exception();
    }
    return made_now;
  }

  void run() {
    while (true) {
      Made next = make();
      const bool last = !next.batch.has_value();
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return stopping || static_cast<int64_t>(made.size()) < prefetch; });
      if (stopping) return;
      made.push_back(std::move(next));
      changed.notify_all();
      if (last) return;
    }
  }

  void start() {
    if (prefetch > 0 && !thread.joinable()) thread = std::thread([this] { run(); });
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    if (thread.joinable()) thread.join();
    stopping = false;
    made.clear();
  }

  std::optional<Batch> next() {
    start();
    Made taken;
    if (prefetch > 0) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !made.empty(); });
      Made& front = made.front();
      if (front.error) std::rethrow_exception(front.error);
      if (!front.batch) return std::nullopt;  // stays in the queue: the end is the end
      taken = std::move(front);
      made.pop_front();
      changed.notify_all();
    } else {
      taken = make();
      if (taken.error) std::rethrow_exception(taken.error);
      if (!taken.batch) return std::nullopt;
    }
    position = std::move(taken.after);
    ++batches;
    return std::move(taken.batch);
  }
};

Batches::Batches(const Provider& provider, const DatasetConfig& config,
                 FeatureConverterPtr converter, BatchOptions options)
    : state_(std::make_unique<State>()) {
  QT_CHECK(!config.use_cached,
           "use_cached = True for '{}': reading seqio's offline caches is not supported; set "
           "use_cached = False",
           provider.name());
  QT_CHECK(!config.task_feature_lengths.empty(), "task_feature_lengths is required for training");
  // Checked before any file is opened.
  converter->model_feature_lengths(config.task_feature_lengths);
  StreamPtr stream = provider.stream({.split = config.split,
                                      .sequence_length = config.task_feature_lengths,
                                      .shuffle = config.shuffle,
                                      .seed = config.seed.value_or(0),
                                      .epochs = options.epochs,
                                      .trim_output_features = config.trim_output_features});
  state_->set_up(converter->convert(std::move(stream), config.task_feature_lengths), config,
                 *converter, config.task_feature_lengths, options.prefetch);
}

Batches::Batches(std::vector<Example> examples, const DatasetConfig& config,
                 FeatureConverterPtr converter)
    : state_(std::make_unique<State>()) {
  Lengths lengths = config.task_feature_lengths;
  if (lengths.empty()) lengths = converter->used_lengths(longest(examples));
  StreamPtr stream = converter->convert(stream_of(std::move(examples)), lengths);
  state_->set_up(std::move(stream), config, *converter, lengths, 0);
}

Batches::~Batches() = default;
Batches::Batches(Batches&&) noexcept = default;
Batches& Batches::operator=(Batches&&) noexcept = default;

std::optional<Batch> Batches::next() { return state_->next(); }

const Lengths& Batches::model_feature_lengths() const { return state_->lengths; }

std::string Batches::position() const {
  return fmt::format(R"({{"data": {}, "batches": {}, "stream": [{}]}})",
                     nlohmann::json(state_->identity).dump(), state_->batches,
                     fmt::join(state_->position, ", "));
}

void Batches::restore(std::string_view text) {
  const Json json = Json::parse(text, "data position");
  const std::string identity = json["data"].as_string();
  QT_CHECK_AS(ExitCode::kData, identity == state_->identity,
              "the saved data position is of '{}', this run reads '{}'; use the same task, split, "
              "lengths, packing, shuffling and seed, or start with a new model directory",
              identity, state_->identity);
  state_->stop();
  const Position position = json["stream"].as_ints();
  PositionReader reader(position);
  state_->stream->restore(reader);
  QT_CHECK_AS(
      ExitCode::kData, reader.done(),
      "data position has more numbers than this data set; the task's preprocessors changed");
  state_->position = position;
  state_->batches = json["batches"].as_int();
}

std::vector<Example> evaluation_examples(const Provider& provider, const DatasetConfig& config,
                                         std::optional<int64_t> limit) {
  StreamOptions options{.split = config.split,
                        .shuffle = config.shuffle,
                        .seed = config.seed.value_or(0),
                        .epochs = 1,
                        .trim_output_features = config.trim_output_features};
  if (!config.task_feature_lengths.empty()) options.sequence_length = config.task_feature_lengths;
  StreamPtr stream = provider.stream(options);
  std::vector<Example> examples;
  Example example;
  while ((!limit || static_cast<int64_t>(examples.size()) < *limit) && stream->next(example))
    examples.push_back(std::move(example));
  QT_CHECK_AS(ExitCode::kData, !examples.empty(), "'{}' has no example in split '{}' to evaluate",
              provider.name(), config.split);
  return examples;
}

}  // namespace quintet::data
