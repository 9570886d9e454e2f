#include "data/workers/worker_functions.h"

#include <nlohmann/json.hpp>

#include "data/evaluation/json_values.h"
#include "data/examples/base64.h"
#include "data/examples/json_feature.h"
#include "data/examples/random.h"
#include "data/examples/tf_example.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet::data {
namespace {

constexpr const char* kBytes = "base64";

JsonText feature_json(const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr || find_bad_utf8(*text) == std::string::npos) return value_json(value);
  return {{kBytes, base64(*text)}};
}

JsonText example_json(const Example& example) {
  JsonText json = JsonText::object();
  for (const auto& [name, value] : example.items()) json[name] = feature_json(value);
  return json;
}

std::string bytes_of(const Json& json) {
  const auto bytes = from_base64(json.as_string());
  QT_CHECK_AS(ExitCode::kData, bytes.has_value(), "{}: expected base64", json.path());
  return *bytes;
}

/// A number, or lists of as many numbers or lists each.
NdArray<double> tensor_of(const Json& json) {
  NdArray<double> tensor;
  if (!json.is_array()) {
    tensor.values = {json.as_double()};
    return tensor;
  }
  for (const Json& item : json.items()) {
    const NdArray<double> part = tensor_of(item);
    if (tensor.shape.empty())
      tensor.shape = part.shape, tensor.shape.insert(tensor.shape.begin(), 0);
    QT_CHECK_AS(ExitCode::kData,
                std::equal(part.shape.begin(), part.shape.end(), tensor.shape.begin() + 1,
                           tensor.shape.end()),
                "{}: its items have different shapes", json.path());
    tensor.values.insert(tensor.values.end(), part.values.begin(), part.values.end());
  }
  if (tensor.shape.empty()) tensor.shape = {0};
  tensor.shape.front() = static_cast<int64_t>(json.size());
  return tensor;
}

Value feature_of(const Json& json) {
  Value value;
  if (json.is_object() && json.size() == 1 && json.has(kBytes) && json[kBytes].is_string())
    return bytes_of(json[kBytes]);
  QT_CHECK_AS(ExitCode::kData, to_feature(json.raw(), value),
              "{}: a feature is a text, a number, a list of them, or a grid of numbers",
              json.path());
  return value;
}

Example example_of(const Json& json) {
  QT_CHECK_AS(ExitCode::kData, json.is_object(), "{}: expected an object of features", json.path());
  Example example;
  for (const auto& [name, value] : json.members()) example.set(name, feature_of(value));
  return example;
}

Answer answer_of(const nlohmann::ordered_json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json.is_boolean()) return int64_t{json.get<bool>()};
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_array()) {
    Answers items;
    for (const auto& item : json) items.push_back(answer_of(item));
    return items;
  }
  QT_CHECK_AS(ExitCode::kData, json.is_object(),
              "answer: expected texts, numbers, lists or objects of them, found {}", json.dump());
  Fields fields;
  for (const auto& [name, value] : json.items()) fields.emplace(name, answer_of(value));
  return fields;
}

std::string line_of(const JsonText& request) {
  return request.dump(-1, ' ', false, JsonText::error_handler_t::replace);
}

/// A request and what becomes of its answer, with examples in the format that the workers take.
class Conversation {
 public:
  explicit Conversation(const Workers& workers) : workers_(workers) {
    if (workers.tf_examples()) request_["format"] = "tf_example";
  }
  Conversation& with(const char* name, JsonText value) {
    request_[name] = std::move(value);
    return *this;
  }
  Conversation& with_example(const Example& example) {
    if (!workers_.tf_examples()) return with("example", example_json(example));
    following_ = serialize_tf_example(example);
    return with("example", following_.size());
  }
  void ask(const Workers::Take& take) const { workers_.ask(line_of(request_), following_, take); }
  /// An example of an answer: an object, or the number of bytes that follow.
  Example example(const Json& json, const Workers::ReadBytes& read) const {
    if (!workers_.tf_examples()) return example_of(json);
    Example example;
    parse_(read(json.as_int()), example);
    return example;
  }

 private:
  const Workers& workers_;
  JsonText request_ = JsonText::object();
  std::string following_;
  const ExampleParser parse_{{}};
};

class ProcessPreprocessor final : public Preprocessor {
 public:
  explicit ProcessPreprocessor(WorkersPtr workers) : workers_(std::move(workers)) {}
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override {
    JsonText lengths = JsonText::object();
    for (const auto& [name, length] : context.sequence_length.value_or(Lengths{}))
      lengths[name] = length.inner.empty() ? JsonText(length.first) : JsonText(length.all());
    return flat_map_stream(
        std::move(input), [workers = workers_, lengths](Example&& in, std::vector<Example>& out) {
          // Python's random.seed and NumPy's take 32 bits.
          const uint64_t seed = Random(take_key(in)).bits() >> 32;
          Conversation about(*workers);
          about.with_example(in).with("sequence_length", lengths).with("seed", seed);
          about.ask([&](const Json& answer, const Workers::ReadBytes& read) {
            for (const Json& example : answer["examples"].items())
              out.push_back(about.example(example, read));
          });
        });
  }

 private:
  WorkersPtr workers_;
};

class ProcessReader final : public Reader {
 public:
  ProcessReader(WorkersPtr workers, std::string split)
      : workers_(std::move(workers)), split_(std::move(split)) {
    Conversation(*workers_).with("split", split_).ask([&](const Json& answer, const auto&) {
      size_ = answer["size"].as_int();
      QT_CHECK_AS(ExitCode::kData, size_ >= 0, "split {}: size: {} examples", split_, size_);
    });
  }
  std::optional<int64_t> size() const override { return size_; }
  void read(int64_t i, Example& out) const override {
    Conversation about(*workers_);
    about.with("split", split_).with("index", i);
    about.ask([&](const Json& answer, const Workers::ReadBytes& read) {
      out.items() = about.example(answer["example"], read).items();
    });
  }
  std::string where(int64_t index) const override {
    return fmt::format("example {} of split {}", index, split_);
  }

 private:
  WorkersPtr workers_;
  std::string split_;
  int64_t size_ = 0;
};

class ProcessSource final : public DataSource {
 public:
  ProcessSource(WorkersPtr workers, std::vector<std::string> splits)
      : workers_(std::move(workers)), splits_(std::move(splits)) {}
  std::vector<std::string> splits() const override { return splits_; }
  std::shared_ptr<const Reader> open(const std::string& split) const override {
    QT_CHECK_AS(ExitCode::kData, std::find(splits_.begin(), splits_.end(), split) != splits_.end(),
                "no split '{}'; there are {}", split, fmt::join(splits_, ", "));
    return std::make_shared<ProcessReader>(workers_, split);
  }

 private:
  WorkersPtr workers_;
  std::vector<std::string> splits_;
};

std::vector<std::string> files_of(const Json& json) {
  std::vector<std::string> files;
  for (const Json& item : json.items()) files.push_back(bytes_of(item));
  return files;
}

/// The values of seqio.metrics (worker_functions.h).
MetricValue metric_value_of(const Json& json) {
  if (json.is_string()) return Text{json.as_string()};
  if (!json.is_object()) return json.as_double();
  const auto integer = [&](const char* name, int64_t otherwise) {
    if (!json.has(name)) return otherwise;
    QT_CHECK_AS(ExitCode::kData, json[name].as_int() > 0, "{}: expected 1 or more",
                json[name].path());
    return json[name].as_int();
  };
  if (json.has("histogram")) {
    Histogram histogram{json["histogram"].as_doubles(), {}};
    if (json.has("bins")) histogram.bins = integer("bins", 0);
    return histogram;
  }
  if (json.has("image"))
    return Image{.width = json["width"].as_int(),
                 .height = json["height"].as_int(),
                 .pictures = files_of(json["image"]),
                 .max_outputs = integer("max_outputs", Image{}.max_outputs)};
  if (json.has("audio"))
    return Audio{.clips = files_of(json["audio"]),
                 .max_outputs = integer("max_outputs", Audio{}.max_outputs)};
  Generic generic{{}, json["plugin_name"].as_string(), ""};
  if (json.has("plugin_content")) generic.plugin_content = bytes_of(json["plugin_content"]);
  generic.tensor = tensor_of(json["tensor"]);
  return generic;
}

MetricValues metric_values_of(const Json& json) {
  MetricValues values;
  for (const auto& [metric, value] : json.members())
    values.insert_or_assign(metric, metric_value_of(value));
  return values;
}

JsonText answers_json(std::span<const Answer> answers) {
  JsonText json = JsonText::array();
  for (const Answer& answer : answers) json.push_back(answer_json(answer));
  return json;
}

JsonText vocabulary_json(const Feature& feature) {
  const auto id_of = [](std::optional<int32_t> id) { return id ? JsonText(*id) : JsonText(); };
  const Vocabulary& vocabulary = *feature.vocabulary;
  return {{"vocab_size", vocabulary.vocab_size()},
          {"pad_id", vocabulary.pad_id()},
          {"eos_id", id_of(vocabulary.eos_id())},
          {"unk_id", id_of(vocabulary.unk_id())},
          {"bos_id", id_of(vocabulary.bos_id())},
          {"add_eos", feature.add_eos},
          {"required", feature.required},
          {"dtype", name_of(feature.type)},
          {"rank", feature.rank}};
}

/// What a metric object is told of a part of the examples.
JsonText part_json(const ModelOutput& output, ModelOutputType type, const Json& range) {
  const auto size = std::ssize(output.inputs);
  const int64_t begin = range[0].as_int(), end = range[1].as_int();
  QT_CHECK_AS(ExitCode::kData, 0 <= begin && begin <= end && end <= size,
              "{}: [{}, {}), expected examples of 0 to {}", range.path(), begin, end, size);
  const auto part = [&](const auto& all) {
    return std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  };
  JsonText json = {{"inputs", JsonText::array()}};
  for (const Example& example : part(output.inputs))
    json["inputs"].push_back(example_json(example));
  if (type == ModelOutputType::score) {
    json["scores"] = JsonText::array();
    for (const double score : part(output.scores)) json["scores"].push_back(json_number(score));
    return json;
  }
  json["predictions"] = part(output.tokens);
  if (type == ModelOutputType::prediction) return json;
  json["aux_values"] = JsonText::object();
  for (const auto& [name, values] : output.aux_values)
    json["aux_values"][name] = answers_json(part(values));
  return json;
}

/// What the process of a metric object asks for.
JsonText reply_json(const ModelOutput& output, ModelOutputType type, const Json& question) {
  if (question.has("examples")) return part_json(output, type, question["examples"]);
  QT_CHECK_AS(ExitCode::kData, question.has("decode") || question.has("encode"),
              "answer: expected metrics, examples, decode or encode, found {}",
              question.raw().dump());
  const std::string name = question["feature"].as_string();
  const Feature* feature = find_feature(output.features, name);
  QT_CHECK_AS(ExitCode::kData, feature != nullptr, "{}: no feature '{}'",
              question["feature"].path(), name);
  JsonText made = JsonText::array();
  if (question.has("encode")) {
    for (const std::string& text : question["encode"].as_strings())
      made.push_back(feature->vocabulary->encode(text));
    return {{"encoded", made}};
  }
  for (const Json& json : question["decode"].items()) {
    Tokens ids;
    for (const int64_t id : json.as_ints()) {
      QT_CHECK_AS(ExitCode::kData, std::in_range<int32_t>(id), "{}: {} is no id of 32 bits",
                  json.path(), id);
      ids.push_back(static_cast<int32_t>(id));
    }
    made.push_back(feature->vocabulary->decode(ids));
  }
  return {{"decoded", made}};
}

}  // namespace

PreprocessorPtr process_preprocessor(WorkersPtr workers) {
  return std::make_shared<ProcessPreprocessor>(std::move(workers));
}

PostprocessFn process_postprocessor(WorkersPtr workers) {
  return [workers = std::move(workers)](const Answer& decoded, const Example& example,
                                        bool is_target) -> Answer {
    Answer made;
    Conversation about(*workers);
    about.with("output", answer_json(decoded)).with_example(example).with("is_target", is_target);
    about.ask([&](const Json& answer, const auto&) { made = answer_of(answer["output"].raw()); });
    return made;
  };
}

MetricFn process_metric(WorkersPtr workers, std::string name) {
  const PredictMetric compute = [workers = std::move(workers)](const Answers& targets,
                                                               const Answers& predictions) {
    MetricValues values;
    Conversation about(*workers);
    about.with("targets", answers_json(targets)).with("predictions", answers_json(predictions));
    about.ask(
        [&](const Json& answer, const auto&) { values = metric_values_of(answer["metrics"]); });
    return values;
  };
  return {std::move(name), compute};
}

MetricObject process_metric_object(WorkersPtr workers, ModelOutputType type, int64_t batch_size) {
  static constexpr const char* kTypes[] = {"prediction", "score", "prediction_with_aux"};
  const auto compute = [workers = std::move(workers), type, batch_size](const ModelOutput& output) {
    JsonText about = {{"model_output_type", kTypes[static_cast<size_t>(type)]},
                      {"target_field_name", output.target_field_name},
                      {"target_length", output.target_length},
                      {"batch_size", batch_size},
                      {"size", output.inputs.size()},
                      {"features", JsonText::object()}};
    for (const auto& [name, feature] : output.features)
      about["features"][name] = vocabulary_json(feature);
    MetricValues values;
    const auto next = [&](const Json& answer, const auto&) -> std::optional<Workers::Request> {
      if (!answer.has("metrics"))
        return Workers::Request{line_of(reply_json(output, type, answer)), ""};
      values = metric_values_of(answer["metrics"]);
      return std::nullopt;
    };
    workers->converse({line_of({{"metric_object", about}}), ""}, next);
    return values;
  };
  return {"ProcessMetricObject", type, compute};
}

FileDataSource::ParseRecord process_decoder(WorkersPtr workers) {
  return [workers = std::move(workers)](std::string_view record, Example& out) {
    Conversation about(*workers);
    about.with("record", {{kBytes, base64(record)}});
    about.ask([&](const Json& answer, const Workers::ReadBytes& read) {
      out.items() = about.example(answer["example"], read).items();
    });
  };
}

void process_write(const Workers& workers, const std::string& path, const std::string& mode,
                   const std::string& lines) {
  std::string list = lines;
  std::ranges::replace(list, '\n', ',');
  if (!list.empty()) list.pop_back();
  const auto done = [&](const Json&, const auto&) {
    QT_CHECK_AS(ExitCode::kData, is_there(path), "{} is not there", path);
  };
  workers.ask(fmt::format(R"({{"write": {}, "mode": "{}", "inferences": [{}]}})",
                          JsonText(path).dump(), mode, list),
              "", done);
}

void process_merge(const Workers& workers, const MergeRequest& request) {
  Conversation(workers)
      .with("merge", {{"output_dir", request.output_dir},
                      {"output_fname", request.output_fname},
                      {"tmp_dir", request.tmp_dir},
                      {"step", request.step}})
      .ask([](const Json&, const auto&) {});
}

DataSourcePtr process_source(WorkersPtr workers, std::vector<std::string> splits) {
  return std::make_shared<ProcessSource>(std::move(workers), std::move(splits));
}

}  // namespace quintet::data
