// Features of every dtype, and tuples as lengths, as seqio makes them (tests/oracles/gen_feature_types.py).
#include <nlohmann/json.hpp>

#include "data/batches/batches.h"
#include "data/cache/cache_writer.h"
#include "data/evaluation/json_values.h"
#include "tests/data/gin_tasks.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

using testing::contains;
using testing::message_of;

class FeatureTypes : public testing::GinTasks {
 protected:
  FeatureTypes()
      : recorded_(Json::read(::quintet::testing::fixture_root() / "seqio/feature_types.json")) {}
  void SetUp() override {
    GinTasks::SetUp();
    write_source("");
  }

  /// Of the recorded examples, but for the feature `without`.
  void write_source(const std::string& without) {
    std::string rows;
    for (const Json& example : recorded_["examples"].items()) {
      nlohmann::ordered_json row = example.raw();
      row.erase(without);
      row["inputs"] = {3, 4};
      row["targets"] = {5};
      rows += row.dump() + "\n";
    }
    source_ =
        std::make_shared<JsonlDataSource>(SplitToFiles{{"train", {write("rows.jsonl", rows)}}});
  }

  FeatureType type_of(const Json& recorded_case, const std::string& name) const {
    std::string type = recorded_["types"][name][0].as_string();
    if (recorded_case.has("declared") && recorded_case["declared"].has(name))
      type = recorded_case["declared"][name].as_string();
    return *feature_type_from_name(type);
  }

  std::vector<std::string> names_of(const Json& recorded_case) const {
    return recorded_case["features"].as_strings();
  }

  Task task_of(const Json& recorded_case) const {
    const auto vocabulary = std::make_shared<PassThroughVocabulary>(100);
    Features features;
    for (const std::string& name : names_of(recorded_case)) {
      int64_t rank = recorded_["types"][name][1].as_int();
      if (recorded_case.has("ranks")) rank = recorded_case["ranks"][name].as_int();
      features.emplace_back(name, Feature{.vocabulary = vocabulary,
                                          .add_eos = false,
                                          .type = type_of(recorded_case, name),
                                          .rank = static_cast<size_t>(rank)});
    }
    for (const char* name : {"inputs", "targets"})
      features.emplace_back(name, Feature{.vocabulary = vocabulary, .add_eos = false});
    return Task({.name = "types",
                 .source = source_,
                 .preprocessors = {std::make_shared<CacheDatasetPlaceholder>()},
                 .output_features = features});
  }

  Lengths lengths_of(const Json& recorded_case) const {
    Lengths lengths = {{"inputs", 4}, {"targets", 2}};
    for (const auto& [name, length] : recorded_case["lengths"].members()) {
      const auto sizes = length.is_array() ? length.as_ints() : std::vector{length.as_int()};
      lengths.emplace_back(name, Length(sizes.front(), {sizes.begin() + 1, sizes.end()}));
    }
    return lengths;
  }

  FeatureConverterPtr converter_of(const Json& recorded_case) const {
    ConverterOptions options{.apply_length_check = recorded_case["check"].as_bool()};
    for (const std::string& name : names_of(recorded_case))
      options.passthrough_features.push_back(
          {.name = name,
           .type = type_of(recorded_case, name),
           .rank = static_cast<size_t>(recorded_["types"][name][1].as_int())});
    return make_feature_converter("EncDecFeatureConverter", options);
  }

  /// As a recorded value: row-major, truth values as numbers.
  static void expect_value(const Json& want, const std::vector<int64_t>& shape,
                           const nlohmann::ordered_json& values) {
    EXPECT_EQ(shape, want["shape"].as_ints());
    nlohmann::ordered_json numbers = nlohmann::ordered_json::array();
    for (const auto& value : want["values"].raw())
      numbers.push_back(value.is_boolean() ? nlohmann::ordered_json(int{value.get<bool>()})
                                           : value);
    EXPECT_EQ(values, numbers);
  }

  void expect_batches(const Json& recorded_case, const Json& want) {
    const Task task = task_of(recorded_case);
    Batches batches(task,
                    {.mixture_or_task_name = "types",
                     .task_feature_lengths = lengths_of(recorded_case),
                     .batch_size = 1},
                    converter_of(recorded_case), {.epochs = 1});
    for (const Json& row : want.items()) {
      const auto batch = batches.next();
      ASSERT_TRUE(batch);
      for (const auto& [name, value] : row.members()) {
        SCOPED_TRACE(name);
        const HostArray& array = batch->features.at(name);
        EXPECT_EQ(name_of(array.dtype), value["dtype"].as_string());
        nlohmann::ordered_json values = nlohmann::ordered_json::array();
        const auto add = [&](const auto& numbers) {
          for (const auto number : numbers) values.push_back(number);
        };
        if (array.dtype == DType::i64) add(array.as<int64_t>());
        if (array.dtype == DType::f64) add(array.as<double>());
        if (array.dtype == DType::f32) add(array.as<float>());
        if (array.dtype == DType::boolean)
          for (const std::byte byte : array.bytes) values.push_back(static_cast<int>(byte));
        expect_value(value, {array.shape.begin() + 1, array.shape.end()}, values);
      }
    }
  }

  void expect_examples(const Json& recorded_case) {
    const StreamPtr stream =
        task_of(recorded_case).stream({.sequence_length = lengths_of(recorded_case), .epochs = 1});
    Example example;
    for (const Json& row : recorded_case["rows"].items()) {
      ASSERT_TRUE(stream->next(example));
      for (const auto& [name, value] : row.members()) {
        SCOPED_TRACE(name);
        const Value& got = example.at(name);
        const nlohmann::ordered_json json = value_json(got);
        std::vector<int64_t> shape;
        for (nlohmann::ordered_json at = json; at.is_array(); at = nlohmann::ordered_json(at.at(0)))
          shape.push_back(std::ssize(at));
        nlohmann::ordered_json values = nlohmann::ordered_json::array();
        const nlohmann::ordered_json flat = json.flatten();
        for (const auto& item : flat.items()) values.push_back(item.value());
        if (value["dtype"].as_string() == "float32")
          for (auto& number : values) number = static_cast<double>(number.get<float>());
        expect_value(value, shape, values);
      }
    }
  }

  const Json recorded_;
  DataSourcePtr source_;
};

TEST_F(FeatureTypes, AreThoseThatSeqioMakes) {
  int64_t cases = 0;
  for (const Json& recorded_case : recorded_["cases"].items()) {
    const std::string name = recorded_case["name"].as_string();
    SCOPED_TRACE(name);
    ++cases;
    if (name == "tuples with the length check") continue;  // below
    if (name == "texts padded") {
      EXPECT_TRUE(
          contains(message_of(ExitCode::kData,
                              [&] { expect_batches(recorded_case, recorded_case["rows"]); }),
                   "batches hold numbers"));
    } else if (recorded_case.has("converter")) {
      expect_batches(recorded_case, recorded_case["rows"]);
    } else if (recorded_case.has("rows")) {
      expect_examples(recorded_case);
    } else {
      const std::string message = message_of(ExitCode::kData, [&] {
        Example example;
        const StreamPtr stream = task_of(recorded_case).stream({.epochs = 1});
        while (stream->next(example)) continue;
      });
      EXPECT_TRUE(contains(message, "expected " + std::string(name.starts_with("another dtype")
                                                                  ? "int32 of rank 1"
                                                                  : "int64 of rank 1")));
    }
  }
  EXPECT_EQ(cases, 10);
}

TEST_F(FeatureTypes, TuplesGoWithTheLengthCheckWhichSeqioCannotDo) {
  for (const Json& recorded_case : recorded_["cases"].items()) {
    if (recorded_case["name"].as_string() != "tuples with the length check") continue;
    EXPECT_TRUE(contains(recorded_case["error"].as_string(), "InvalidArgumentError"));
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const Json& other : recorded_["cases"].items())
      if (other["name"].as_string() == "padded by tuples")
        for (const Json& row : other["rows"].items()) rows.push_back({{"grid", row["grid"].raw()}});
    expect_batches(recorded_case, Json::parse(rows.dump()));
  }
}

TEST_F(FeatureTypes, GoThroughACacheWithTheirNames) {
  write_source("grid");  // whose rows have different lengths, which a cache cannot hold
  const Json padded = recorded_["cases"][3];
  const Task task = task_of(padded);
  const std::string folder = (folder_ / "cache").string();
  write_cache(task, {.output_cache_dir = folder, .min_shards = 1});
  const Json info = Json::read(folder + "/types/info.train.json");
  for (const std::string& name : names_of(padded))
    EXPECT_EQ(info["features"][name]["dtype"].as_string(), recorded_["types"][name][0].as_string());
  const StreamPtr stream = task.stream({.epochs = 1, .use_cached = true, .cache_dirs = {folder}});
  std::multiset<std::string> got;
  Example example;
  while (stream->next(example))
    got.insert(to_string(example.at("wide")) + to_string(example.at("flags")));
  EXPECT_EQ(got, (std::multiset<std::string>{"[1, -1099511627776, 3][1, 0]", "[7][1, 1, 0]"}));
}

TEST_F(FeatureTypes, AndTuplesAreBoundInGin) {
  const auto tasks = tasks_of(R"(
import seqio
from t5x import utils
wide/seqio.ContinuousFeature.dtype = 'int64'
wide/seqio.ContinuousFeature.rank = 2
seqio.Task:
  name = 'mine'
  source = @seqio.FunctionDataSource()
  output_features = {'grid': @wide/seqio.ContinuousFeature()}
utils.DatasetConfig:
  mixture_or_task_name = 'mine'
  task_feature_lengths = {'inputs': 3, 'grid': (3, 4)}
  split = 'train'
  batch_size = 2
  shuffle = False
  seed = 0
)");
  const auto dataset = config_->call_as<DatasetConfig>("t5x.utils.DatasetConfig");
  EXPECT_EQ(dataset.task_feature_lengths, (Lengths{{"inputs", 3}, {"grid", Length(3, {4})}}));
  const std::string message = message_of(ExitCode::kUsage, [&] {
    tasks_of("import seqio\nseqio.ContinuousFeature.dtype = 'int8'\n");
    config_->call("seqio.ContinuousFeature");
  });
  EXPECT_TRUE(contains(message, "'int32', 'int64', 'float32', 'float64', 'bool' or 'string'"));
}

}  // namespace
}  // namespace quintet::data
