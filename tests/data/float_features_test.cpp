// Features that are floats or have two dimensions, from files and functions to the arrays that a
// model gets.
#include "data/batches/batches.h"
#include "data/cache/cache_writer.h"
#include "data/examples/tf_example.h"
#include "runtime/base/formats/tfrecord.h"
#include "tests/data/gin_tasks.h"

namespace quintet::data {
namespace {

using testing::contains;
using testing::message_of;

/// Example n: {inputs: n % 4 + 1 ids, targets: [n], weights: n % 3 floats, table: [n % 5, 2]
/// floats, pairs: [n % 2 + 1, 2] ids, n}.
Example example_of(int n) {
  Example example;
  example.set("inputs", Tokens(static_cast<size_t>(n % 4 + 1), n + 2));
  example.set("targets", Tokens{n + 2});
  std::vector<double> weights, table;
  for (int i = 0; i < n % 3; ++i) weights.push_back(n + 0.25 * i);
  for (int i = 0; i < 2 * (n % 5); ++i) table.push_back(0.5 * i - n);
  example.set("weights", weights);
  example.set("table", NdArray<double>{{n % 5, 2}, table});
  Tokens pairs;
  for (int i = 0; i < 2 * (n % 2 + 1); ++i) pairs.push_back(10 * n + i);
  example.set("pairs", NdArray<int32_t>{{n % 2 + 1, 2}, pairs});
  return example;
}

constexpr int kExamples = 40;

/// What row n of the batches must hold of a feature: cut or padded to `length` steps.
template <typename T, typename V>
std::vector<T> padded(const std::vector<V>& values, size_t length, size_t step) {
  std::vector<T> row(values.begin(), values.begin() + std::min(values.size(), length * step));
  row.resize(length * step);
  return row;
}

class FloatFeatures : public testing::GinTasks {
 protected:
  const Lengths lengths_ = {
      {"inputs", 4}, {"targets", 2}, {"weights", 2}, {"table", 3}, {"pairs", 2}};

  /// A task over the files, which `source` reads, cacheable; and its converter.
  std::string task(const std::string& source) {
    return R"(
import seqio
seqio.Feature.vocabulary = @seqio.PassThroughVocabulary()
seqio.PassThroughVocabulary.size = 500
seqio.Feature.add_eos = False
floats/seqio.ContinuousFeature.dtype = 'float32'
table/seqio.ContinuousFeature:
  dtype = 'float32'
  rank = 2
pairs/seqio.ContinuousFeature.rank = 2
seqio.Task:
  name = 'mixed'
  source = )" +
           source + R"(
  preprocessors = [@seqio.CacheDatasetPlaceholder()]
  output_features = {'inputs': @seqio.Feature(), 'targets': @seqio.Feature(),
                     'weights': @floats/seqio.ContinuousFeature(), 'table': @table/seqio.ContinuousFeature(),
                     'pairs': @pairs/seqio.ContinuousFeature()}
seqio.TaskRegistry.tasks = [@seqio.Task()]
seqio.EncDecFeatureConverter.passthrough_features = {
    'weights': ('float32', 1), 'table': ('float32', 2), 'pairs': ('int32', 2)}
)";
  }
  std::string tf_examples() {
    std::string bytes;
    for (int n = 0; n < kExamples; ++n) append_tfrecord(bytes, serialize_tf_example(example_of(n)));
    return task("@seqio.TFExampleDataSource()") + R"(
seqio.TFExampleDataSource.feature_description = {
    'inputs': 'int32[]', 'targets': 'int32[]', 'weights': 'float32[]', 'table': 'float32[?,2]', 'pairs': 'int32[?,2]'}
seqio.TFExampleDataSource.split_to_filepattern = {'train': ')" +
           write("f.tfrecord", bytes) + "'}\n";
  }
  FeatureConverterPtr converter(bool length_check = false) const {
    return make_feature_converter("EncDecFeatureConverter",
                                  {.apply_length_check = length_check,
                                   .passthrough_features = {{"weights", FeatureType::float32, 1},
                                                            {"table", FeatureType::float32, 2},
                                                            {"pairs", FeatureType::int32, 2}}});
  }
  DatasetConfig config() const {
    return {.mixture_or_task_name = "mixed", .task_feature_lengths = lengths_, .batch_size = 4};
  }

  void expect_rows(const Provider& provider, DatasetConfig dataset, Shard shard, int64_t batches) {
    Batches all(provider, dataset, converter(), {.epochs = 1, .shard = shard});
    for (int64_t b = 0; b < batches; ++b) {
      const auto batch = all.next();
      ASSERT_TRUE(batch);
      const int64_t rows = 4 / shard.count;
      const HostArray &weights = batch->features.at("weights"),
                      &table = batch->features.at("table"), &pairs = batch->features.at("pairs");
      EXPECT_EQ(weights.shape, (std::vector<int64_t>{rows, 2}));
      EXPECT_EQ(table.shape, (std::vector<int64_t>{rows, 3, 2}));
      EXPECT_EQ(pairs.shape, (std::vector<int64_t>{rows, 2, 2}));
      EXPECT_EQ(batch->features.at("encoder_input_tokens").dtype, DType::i32);
      std::vector<float> want_weights, want_table;
      std::vector<int32_t> want_pairs;
      for (int64_t r = 0; r < rows; ++r) {
        const Example example = example_of(static_cast<int>(4 * b + rows * shard.index + r));
        const auto add = [](auto& to, const auto& row) {
          to.insert(to.end(), row.begin(), row.end());
        };
        add(want_weights,
            padded<float>(std::get<std::vector<double>>(example.at("weights")), 2, 1));
        add(want_table, padded<float>(std::get<NdArray<double>>(example.at("table")).values, 3, 2));
        add(want_pairs,
            padded<int32_t>(std::get<NdArray<int32_t>>(example.at("pairs")).values, 2, 2));
      }
      const auto equal = [](const auto& got, const auto& want) {
        return std::equal(got.begin(), got.end(), want.begin(), want.end());
      };
      EXPECT_TRUE(equal(weights.as<float>(), want_weights)) << b;
      EXPECT_TRUE(equal(table.as<float>(), want_table)) << b;
      EXPECT_TRUE(equal(pairs.as<int32_t>(), want_pairs)) << b;
    }
    EXPECT_LT(all.position().size(), 400u);
  }
};

TEST_F(FloatFeatures, ComeFromTfExamplesInTasksOfGin) {
  const auto tasks = tasks_of(tf_examples());
  for (const Shard shard : {Shard{0, 1}, Shard{1, 2}, Shard{3, 4}})
    expect_rows(*tasks.get("mixed"), config(), shard, kExamples / 4);
}

TEST_F(FloatFeatures, ComeFromFunctionsAndJson) {
  const Features features = tasks_of(tf_examples()).get("mixed")->output_features();
  const auto task_of = [&](DataSourcePtr source) {
    return Task({.name = "made",
                 .source = std::move(source),
                 .preprocessors = {},
                 .output_features = features});
  };
  expect_rows(task_of(std::make_shared<FunctionDataSource>(
                  "made",
                  std::map<std::string, FunctionDataSource::Split>{
                      {"train",
                       {kExamples,
                        [](int64_t n, Example& out) {
                          out.items() = example_of(static_cast<int>(n)).items();
                        }}}})),
              config(), {}, kExamples / 4);
  const std::string file = write(
      "f.jsonl",
      R"({"inputs": [7], "targets": [8], "weights": [0.5], "table": [[1.0, 2.0]], "pairs": [[1, 2], [3, 4]]})");
  DatasetConfig one_a_batch = config();
  one_a_batch.batch_size = 1;
  Batches batches(task_of(std::make_shared<JsonlDataSource>(SplitToFiles{{"train", {file}}})),
                  one_a_batch, converter());
  const auto batch = batches.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->features.at("table").as<float>()[1], 2.0f);
  EXPECT_EQ(batch->features.at("pairs").as<int32_t>()[3], 4);
}

TEST_F(FloatFeatures, GoThroughACache) {
  const auto tasks = tasks_of(tf_examples());
  const auto folder = (folder_ / "cache").string();
  write_cache(*tasks.get("mixed")->tasks().front(), {.output_cache_dir = folder, .min_shards = 1});
  DatasetConfig cached = config();
  cached.use_cached = true;
  cached.cache_dirs = {folder};
  Batches batches(*tasks.get("mixed"), cached, converter(), {.epochs = 1});
  std::multiset<float> got, want;  // a cache is shuffled
  while (auto batch = batches.next())
    for (const float v : batch->features.at("table").as<float>()) got.insert(v);
  for (int n = 0; n < kExamples; ++n)
    for (const float v :
         padded<float>(std::get<NdArray<double>>(example_of(n).at("table")).values, 3, 2))
      want.insert(v);
  EXPECT_EQ(got, want);
}

TEST_F(FloatFeatures, ThatDoNotFitAreNamedWithTheirExample) {
  const auto tasks = tasks_of(tf_examples());
  const auto read_all = [&](const DatasetConfig& dataset, FeatureConverterPtr how) {
    Batches batches(*tasks.get("mixed"), dataset, std::move(how));
    while (batches.next()) continue;
  };
  DatasetConfig dataset = config();
  dataset.trim_output_features = false;
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { read_all(dataset, converter(true)); }),
                       "): feature 'table' has 4 ids, expected at most 3"));
  const auto as_float = make_feature_converter(
      "EncDecFeatureConverter", {.passthrough_features = {{"pairs", FeatureType::float32, 2}}});
  dataset = config();
  dataset.task_feature_lengths = {{"inputs", 4}, {"targets", 2}, {"pairs", 2}};
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { read_all(dataset, as_float); }),
                       "feature 'pairs' is"));
  std::vector<Example> ragged(2);
  ragged[0].set("table", NdArray<double>{{1, 2}, {1, 2}});
  ragged[1].set("table", NdArray<double>{{1, 3}, {1, 2, 3}});
  dataset.task_feature_lengths = {{"table", 1}};
  Batches batches(ragged, dataset, make_feature_converter("PassThroughFeatureConverter", {}));
  EXPECT_TRUE(
      contains(message_of(ExitCode::kData, [&] { batches.next(); }),
               "feature 'table' is float32 [1, 3], the batch's first row has float32 [1, 2]"));
}

}  // namespace
}  // namespace quintet::data
