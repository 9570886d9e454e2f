// `quintet bench data`: from lines of text to packed span-corruption batches, on one core.

#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "apps/bench.h"
#include "apps/cli.h"
#include "data/batches.h"
#include "data/preprocessors/denoise.h"
#include "data/preprocessors/text_preprocessors.h"
#include "data/preprocessors/token_preprocessors.h"
#include "data/random.h"
#include "data/vocabularies/tokenizer_trainer.h"
#include "runtime/base/atomic_file.h"

namespace quintet {
namespace {

using namespace quintet::data;  // every name here is of that folder

struct Options {
  std::string input, model;
  int64_t inputs = 512, targets = 114, batch = 128;
  double seconds = 5;
  bool pack = true;
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
std::string made_up_text(int64_t lines) {
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

VocabularyPtr open_vocabulary(const Options& options, const TemporaryFolder& folder) {
  constexpr int32_t kExtraIds = 100;
  if (options.model == "byte") return std::make_shared<ByteVocabulary>(kExtraIds);
  if (!options.model.empty())
    return std::make_shared<SentencePieceVocabulary>(options.model, kExtraIds);
  TokenizerOptions training{.inputs = {options.input}, .vocab_size = 3000};
  training.input_sentence_size = 20'000;
  const auto report = train_tokenizer(training, (folder.path / "bench").string());
  return std::make_shared<SentencePieceVocabulary>(report.model_file, kExtraIds);
}

ProviderPtr make_task(const Options& options, const VocabularyPtr& vocabulary) {
  auto rekey = std::make_shared<Rekey>();
  rekey->key_map = {{"inputs", ""}, {"targets", "text"}};
  auto tokenize = std::make_shared<Tokenize>();
  tokenize->copy_pretokenized = false;
  return std::make_shared<Task>(Task::Config{
      .name = "bench",
      .source = std::make_shared<TextLineDataSource>(SplitToFiles{{"train", {options.input}}}),
      .preprocessors = {rekey, tokenize, std::make_shared<SpanCorruption>(),
                        std::make_shared<AppendEosAfterTrim>()},
      .output_features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}}});
}

}  // namespace

int run_bench_data(std::span<char* const> args) {
  Options options;
  bool padded = false;
  CommandLine cli(
      "bench data", "Times tokenizing, span corruption and packing on one core.",
      "quintet bench data\nquintet bench data --input='docs/*.txt' --vocabulary=docs.model");
  CLI::App& app = cli.app();
  app.add_option("--input", options.input, "text files; default: made-up text");
  app.add_option("--vocabulary", options.model, "a .model file, or 'byte'; default: trained here");
  app.add_option("--inputs", options.inputs, "length of inputs")->capture_default_str();
  app.add_option("--targets", options.targets, "length of targets")->capture_default_str();
  app.add_option("--batch", options.batch, "rows of a batch")->capture_default_str();
  app.add_option("--seconds", options.seconds, "of CPU time")->capture_default_str();
  app.add_flag("--no_pack", padded, "pad rows instead of packing");
  if (!cli.parse(args)) return 0;

  const TemporaryFolder folder;
  if (options.input.empty()) {
    options.input = (folder.path / "text.txt").string();
    atomic_write_file(options.input, made_up_text(40'000));
  }
  const VocabularyPtr vocabulary = open_vocabulary(options, folder);
  const ProviderPtr task = make_task(options, vocabulary);
  const DatasetConfig config{
      .mixture_or_task_name = "bench",
      .task_feature_lengths = {{"inputs", options.inputs}, {"targets", options.targets}},
      .batch_size = options.batch,
      .shuffle = true,
      .seed = 1,
      .pack = !padded};
  Batches batches(*task, config,
                  make_feature_converter("EncDecFeatureConverter", {.pack = !padded}),
                  {.prefetch = 0});
  batches.next();  // opens files
  const double start = thread_seconds();
  const auto wall_start = std::chrono::steady_clock::now();
  int64_t rows = 0, tokens = 0;
  double seconds = 0;
  while ((seconds = thread_seconds() - start) < options.seconds) {
    const auto batch = batches.next();
    rows += batch->rows;
    for (const char* name : {"encoder_input_tokens", "decoder_target_tokens"})
      for (int32_t id : batch->features.at(name).as<int32_t>()) tokens += id != 0;
  }
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_start).count();
  fmt::print(stderr, "{} on {}: {:.0f} rows/s of {} + {}\n", vocabulary->description(),
             options.input, static_cast<double>(rows) / seconds, options.inputs, options.targets);
  fmt::print(
      R"({{"bench": "data", "tokens_per_second": {:.0f}, "rows_per_second": {:.1f}, )"
      R"("cpu_seconds": {:.3f}, "wall_seconds": {:.3f}, "inputs": {}, "targets": {}, "packed": {}, )"
      R"("vocab_size": {}}})"
      "\n",
      static_cast<double>(tokens) / seconds, static_cast<double>(rows) / seconds, seconds, wall,
      options.inputs, options.targets, !padded, vocabulary->vocab_size());
  return 0;
}

}  // namespace quintet
