#include "apps/infer/inference.h"

#include <nlohmann/json.hpp>
#include <set>

#include "apps/infer/inference_files.h"
#include "apps/infer/intermediates.h"
#include "apps/input/run_vocabularies.h"
#include "apps/input/same_data.h"
#include "apps/model/checkpoint_parameters.h"
#include "apps/model/model_info.h"
#include "apps/model/predictor.h"
#include "apps/model/restored_checkpoint.h"
#include "apps/process/inference_ranks.h"
#include "apps/process/progress.h"
#include "apps/process/signals.h"
#include "checkpoint/lora/adapter.h"
#include "checkpoint/open/open_checkpoint.h"
#include "data/reading/contents.h"
#include "data/service/peer_chunks.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet {
namespace {

/// What the model says of one batch's examples.
class Answerer {
 public:
  /// Reads the parameters, unless they are quantized.
  Answerer(const InferenceConfig& config, const std::shared_ptr<const CheckpointReader>& checkpoint,
           SharedMemoryGroup* ranks, bool leads)
      : config_(config),
        returns_intermediates_(config.mode == "score" && config.model->config != nullptr &&
                               config.model->config->arguments(config.model->name + ".score_batch")
                                   .get<bool>("return_intermediates")),
        sows_(returns_intermediates_ && config.model->model->spec().sows()),
        weights_(config.restore.fallback_seed || sows_
                     ? weights_of(config.weights, checkpoint)
                     : weights_to_generate(config.weights, checkpoint, ranks)) {
    weights_.ranks = ranks;
    QT_CHECK(config.mode != "score" || !weights_.quantized,
             "infer: scores are computed in float32, {} holds weights in {}; name the run that it "
             "was made from",
             checkpoint->folder().string(), name_of(weights_.type));
    const std::string warning = initialized_text(
        load_for(weights_, *checkpoint, *config.model->model, config.restore.fallback_seed));
    if (leads) fmt::print(stderr, "{}", warning);
    if (sows_) return;  // what parts of a network make is the model's own to say
    predictor_.emplace(*config.model, config.decode, weights_, config.cache_type);
    if (!Device::current().is_cpu()) drop_packed(*config.model->model, weights_);
  }
  WeightType weights() const { return weights_.type; }

  std::vector<data::Inference> answer(const data::Batch& batch, Key key) const {
    std::vector<data::Inference> answers(static_cast<size_t>(batch.rows));
    if (config_.mode == "score") {
      SownValues sown;
      const BaseModel::TokenScores tokens =
          sows_ ? config_.model->model->score_tokens(batch.features, &sown)
                : predictor_->score(batch.features);
      const std::vector<double> scores = tokens.sums();
      std::optional<Intermediates> intermediates;
      if (returns_intermediates_)
        intermediates.emplace(config_.model->model->spec(), batch.features, tokens, sown);
      for (size_t i = 0; i < answers.size(); ++i) {
        answers[i].score = scores[i];
        if (intermediates) answers[i].aux = intermediates->of_row(i);
      }
      return answers;
    }
    const decoding::Decodes decodes = predictor_->predict(batch.features, key);
    for (int64_t row = 0; row < batch.rows; ++row)
      answers[static_cast<size_t>(row)] = of_row(decodes, row);
    return answers;
  }

 private:
  data::Inference of_row(const decoding::Decodes& decodes, int64_t row) const {
    data::Inference inference;
    inference.all_decodes = predictor_->returns_all_decodes();
    data::Answers scores;
    for (int64_t d = inference.all_decodes ? 0 : decodes.num_decodes - 1; d < decodes.num_decodes;
         ++d) {
      const auto tokens = decodes.sequence(row, d);
      inference.decodes.emplace_back(tokens.begin(), tokens.end());
      scores.push_back(
          static_cast<double>(decodes.scores[static_cast<size_t>(row * decodes.num_decodes + d)]));
    }
    if (config_.mode == "predict_with_aux")
      inference.aux["scores"] = inference.all_decodes ? data::Answer(scores) : scores.front();
    return inference;
  }

  const InferenceConfig& config_;
  const bool returns_intermediates_, sows_;
  Weights weights_;
  std::optional<Predictor> predictor_;
};

/// One task's part of the work, chunk by chunk.
class TaskRun {
 public:
  TaskRun(const InferenceConfig& config, const std::filesystem::path& output_dir, int64_t step,
          const std::string& origin, const data::Task& task, const Ranks& ranks,
          const InferenceRanks& division, std::shared_ptr<data::ChunkRunner> reader,
          const Answerer& answerer)
      : config_(config),
        step_(step),
        task_(task),
        ranks_(ranks),
        division_(division),
        reader_(std::move(reader)),
        answerer_(answerer),
        converter_(converter_for(*config.model, {})),
        contents_(task.contents({.split = config.dataset.split,
                                 .use_cached = config.dataset.use_cached,
                                 .cache_dirs = config.dataset.cache_dirs})),
        files_(output_dir, {.task = task.name(),
                            .mode = config.mode,
                            .extension = config.file_extension,
                            .shard = config.shard,
                            .origin = origin + contents_text()}) {}

  /// False: asked to stop.
  bool run(StopRequests& stop) {
    const bool complete = ranks_.leads() && files_.is_complete(config_.merge_chunked_results);
    if (ranks_.highest(complete ? 1 : 0) > 0) {
      is_old_ = true;
      return true;
    }
    const data::StreamPtr stream =
        data::evaluation_stream(task_, config_.dataset, config_.shard, reader_);
    int64_t chunk = resume(*stream);
    for (auto examples = read_chunk(*stream); !examples.empty();
         examples = read_chunk(*stream), ++chunk) {
      const int64_t answered = answered_ + std::ssize(examples);
      if (!config_.checkpoint_ds_iter && has_chunk(chunk)) {
        answered_ = answered;
        continue;
      }
      const std::optional<std::string> lines = answer_chunk(chunk, examples, stop);
      if (!lines) {
        progress_.finish();
        return false;
      }
      data::Position position;
      stream->save(position);
      if (ranks_.leads()) {
        files_.write_chunk(
            chunk, [&](const auto& path) { write(path, *lines); }, position);
        progress_.line(fmt::format("{}: chunk {}, {} examples", task_.name(), chunk, answered));
      }
      answered_ = answered;
    }
    QT_CHECK_AS(ExitCode::kData, chunk > 0, "task '{}' has no example in split '{}'{}",
                task_.name(), config_.dataset.split,
                config_.shard.num_shards > 1 ? " of this shard" : "");
    show(answered_, answered_);
    progress_.finish();
    if (ranks_.leads()) files_.complete(chunk, config_.merge_chunked_results, own_merge());
    return true;
  }

  /// After run(): where the answers are.
  void print(const ResultFormat& format) const {
    const std::string file = files_.result(config_.merge_chunked_results).string();
    nlohmann::ordered_json object = {{"task", task_.name()}, {"file", file}};
    object["examples"] = is_old_ ? nlohmann::ordered_json() : nlohmann::ordered_json(answered_);
    format.print_object(object.dump());
    format.print_text(is_old_ ? file + " is there already\n"
                              : fmt::format("{}: {} examples\n", file, answered_));
  }

 private:
  /// What decides the results: a started run goes on only with the same.
  std::string contents_text() const {
    const data::DatasetConfig& set = config_.dataset;
    std::string lengths;
    for (const auto& [name, length] : set.task_feature_lengths)
      lengths += fmt::format(" {}={}", name, length.text());
    return fmt::format(
               ", split {}, batch_size {}, checkpoint_period {}, lengths{}, {} examples (files "
               "{}), "
               "configuration {:08x}, weights in {}{}",
               set.split, set.batch_size, config_.checkpoint_period, lengths, contents_.examples,
               data::fingerprint(contents_.files), crc32c(config_.config_text),
               name_of(answerer_.weights()), config_.decode.text()) +
           (config_.cache_type == CacheType::native
                ? ""
                : fmt::format(", caches in {}", name_of(config_.cache_type)));
  }

  void write(const std::filesystem::path& path, const std::string& lines) const {
    if (config_.write_fn != nullptr)
      data::process_write(*config_.write_fn, path.string(), config_.mode, lines);
    else
      atomic_write_file(path, lines);
  }

  InferenceFiles::Merge own_merge() const {
    if (config_.merge_fn == nullptr) return {};
    return [this](const std::filesystem::path& result, const std::filesystem::path& chunks) {
      data::process_merge(*config_.merge_fn, {.output_dir = result.parent_path().string(),
                                              .output_fname = result.filename().string(),
                                              .tmp_dir = chunks.string(),
                                              .step = step_});
    };
  }

  bool has_chunk(int64_t chunk) const {
    return ranks_.highest(ranks_.leads() && files_.has_chunk(chunk) ? 1 : 0) > 0;
  }

  /// The number of the first chunk that is not there, after moving the stream to its beginning.
  int64_t resume(data::Stream& stream) {
    std::string place;
    if (ranks_.leads()) {
      place = files_.start();
      if (!config_.checkpoint_ds_iter) place = "";
    }
    place = ranks_.of_leader(place);
    if (place.empty()) return 0;
    const auto [chunk, position] = InferenceFiles::parse_place(place);
    data::PositionReader reader(position);
    stream.restore(reader);
    answered_ = chunk * config_.checkpoint_period * config_.dataset.batch_size;
    if (ranks_.leads()) fmt::print(stderr, "{}: goes on at chunk {}\n", task_.name(), chunk);
    return chunk;
  }

  std::vector<data::Example> read_chunk(data::Stream& stream) const {
    std::vector<data::Example> examples;
    data::Example example;
    while (std::ssize(examples) < config_.checkpoint_period * config_.dataset.batch_size &&
           stream.next(example))
      examples.push_back(std::move(example));
    return examples;
  }

  /// total: of the source, of which preprocessing may leave more or fewer.
  void show(int64_t answered, int64_t total) {
    if (ranks_.leads())
      progress_.update(task_.name(), answered, std::max(answered, total), "examples");
  }

  /// Lines of all ranks' batches; nothing if a rank was asked to stop.
  std::optional<std::string> answer_chunk(int64_t chunk, const std::vector<data::Example>& examples,
                                          StopRequests& stop) {
    const int64_t size = config_.dataset.batch_size;
    const int64_t batches = (std::ssize(examples) + size - 1) / size;
    // As T5X draws: a key a chunk, split once a batch.
    Key key = fold_in(key_from_seed(0), static_cast<uint32_t>(chunk));
    std::string lines;
    for (int64_t first = 0; first < batches; first += division_.groups()) {
      if (ranks_.highest(stop.reason() ? 1 : 0) > 0) return std::nullopt;
      show(answered_ + first * size, contents_.examples / config_.shard.num_shards);
      std::string own;
      for (int64_t batch = first; batch < std::min(batches, first + division_.groups()); ++batch) {
        if (batch - first == division_.group_index())
          own = answer_batch(examples, batch * size, split_at(key, 0));
        key = split_at(key, 1);
      }
      for (const std::string& text : division_.gather(own)) lines += text;
    }
    return lines;
  }

  std::string answer_batch(const std::vector<data::Example>& examples, int64_t begin,
                           Key key) const {
    const auto end = std::min(std::ssize(examples), begin + config_.dataset.batch_size);
    std::vector<data::Example> own(examples.begin() + begin, examples.begin() + end);
    data::Batches batches(own, config_.dataset, converter_);
    const std::optional<data::Batch> batch = batches.next();
    QT_ASSERT(batch && batch->rows == std::ssize(own));
    const auto* feature =
        data::find_feature(task_.output_features(), config_.output_vocab_feature_name);
    QT_CHECK(feature != nullptr, "infer.output_vocab_feature_name: task '{}' has no feature '{}'",
             task_.name(), config_.output_vocab_feature_name);
    const std::vector<data::Inference> answers = answerer_.answer(*batch, key);
    std::string lines;
    for (size_t i = 0; i < own.size(); ++i)
      lines += data::inference_line(own[i], answers[i], *feature->vocabulary, config_.line) + "\n";
    return lines;
  }

  const InferenceConfig& config_;
  const int64_t step_;
  const data::Task& task_;
  const Ranks& ranks_;
  const InferenceRanks& division_;
  const std::shared_ptr<data::ChunkRunner> reader_;
  const Answerer& answerer_;
  const data::FeatureConverterPtr converter_;
  const data::Contents contents_;
  int64_t answered_ = 0;
  bool is_old_ = false;  // the results were there already
  InferenceFiles files_;
  PartsProgress progress_;
};

}  // namespace

int run_inference(const InferenceConfig& config, const Ranks& ranks, const ProviderOf& provider_of,
                  const ResultFormat& format) {
  config.check();
  const InferenceRanks division(ranks, model_ranks_of(config.partitioner.num_partitions, ranks));
  StopRequests stop({});
  const data::ProviderPtr provider = provider_of(config.dataset);
  if (config.verify_vocabs) verify_matching_vocabs(*config.model, *provider);
  check_ids(*config.model, *provider, config.dataset);
  agree_on_data(ranks, *config.model, {{"infer", provider, config.dataset}});
  const auto vocabularies = vocabularies_of(*config.model, provider->output_features());
  const std::vector<std::filesystem::path> folders = checkpoint_folders(config.restore, ranks);
  std::optional<data::Mailbox> mail;
  std::shared_ptr<data::ChunkRunner> reader;  // of several ranks: each preprocesses its share
  if (ranks.size() > 1)
    reader = std::make_shared<data::PeerChunks>(mail.emplace(), ranks.size(), ranks.rank(),
                                                ranks.session().hosts(), data::reader_threads(0));
  if (ranks.leads() && config.shard.index == 0)
    describe_results(config.output_dir, folders, config.config_text,
                     config.model->model->parameters(), config.partitioner.logical_axis_rules);
  std::set<std::filesystem::path> written;
  for (const std::filesystem::path& folder : folders) {
    const auto stored = open_checkpoint(folder);
    stored->verify_before_reading();
    check_recorded(*stored, vocabularies, ranks.leads());
    const auto checkpoint =
        restored(stored, config.restore, shapes_of(config.model->model->parameters()));
    const std::filesystem::path output_dir =
        folders.size() > 1 ? config.output_dir / fmt::format("checkpoint_{}", checkpoint->step())
                           : config.output_dir;
    QT_CHECK(written.insert(output_dir).second,
             "{}: is another checkpoint of step {}, and its answers would be where those of the "
             "first are; give each checkpoint an output_dir of its own",
             folder.string(), checkpoint->step());
    const Answerer answerer(config, checkpoint, division.group(), ranks.leads());
    for (const data::Task* task : provider->tasks()) {
      std::string origin = std::filesystem::canonical(folder).string();
      for (const auto& [name, text] : checkpoint->details())
        if (name == kAdapterDetail) origin += fmt::format(", adapter {}", text);
      TaskRun run(config, output_dir, checkpoint->step(), origin, *task, ranks, division, reader,
                  answerer);
      if (run.run(stop)) {
        if (ranks.leads()) run.print(format);
        continue;
      }
      if (ranks.leads())
        fmt::print(stderr, "stopped by {}; run the same command again to go on\n",
                   stop.reason().value_or("another rank"));
      return static_cast<int>(ExitCode::kSavedRunAgain);
    }
  }
  return 0;
}

}  // namespace quintet
