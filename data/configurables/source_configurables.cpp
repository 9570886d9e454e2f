#include "data/configurables/source_configurables.h"

#include <algorithm>

#include "data/examples/tf_example.h"
#include "data/sources/tfds_features.h"
#include "data/tasks/gin_types.h"
#include "data/tasks/number_words.h"
#include "runtime/base/check.h"
#include "runtime/gin/registry/registry.h"

namespace quintet::data {
namespace {

using gin::Arguments;
using gin::Param;
using gin::Registry;
using gin::Value;
using gin::Where;

/// {'train': 'a*.txt', 'validation': ['b.txt', 'c.txt']}
SplitToFiles split_to_files(const Arguments& a) {
  const auto patterns = a.get<std::map<std::string, Value>>("split_to_filepattern");
  SplitToFiles files;
  for (const auto& [split, value] : patterns) {
    const Where where = a.where("split_to_filepattern").key(split);
    files[split] = value.get_if<std::string>() != nullptr
                       ? std::vector<std::string>{gin::as<std::string>(value, where)}
                       : gin::as<std::vector<std::string>>(value, where);
  }
  QT_CHECK(!files.empty(), "{}: names no split", a.where("split_to_filepattern").text);
  return files;
}

FileOptions file_options(const Arguments& a) {
  const auto positive = [&](const char* name) {
    const auto value = a.get<int64_t>(name);
    QT_CHECK(value > 0, "{}: expected 1 or more, found {}", a.where(name).text, value);
    return value;
  };
  return {.on_bad_example = a.get<OnBadExample>("on_bad_example"),
          .skip_header_lines = a.get<int64_t>("skip_header_lines"),
          .max_line_bytes = a.get<int64_t>("max_line_bytes"),
          .cycle_length = positive("cycle_length"),
          .block_length = positive("block_length"),
          .performs_internal_shuffling = a.get_or<bool>("performs_internal_shuffling", false)};
}

/// Parameters of every source of files, and `more`.
std::vector<Param> file_params(std::vector<Param> more = {}) {
  const FileOptions options;
  std::vector<Param> params = {"split_to_filepattern",
                               {"skip_header_lines", options.skip_header_lines},
                               {"on_bad_example", "fail"},
                               {"max_line_bytes", options.max_line_bytes},
                               {"num_input_examples", nullptr},
                               {"caching_permitted", true},
                               {"file_shuffle_buffer_size", nullptr},
                               {"cycle_length", options.cycle_length},
                               {"block_length", options.block_length}};
  params.insert(params.end(), more.begin(), more.end());
  return params;
}

/// A default value of a single number or text.
data::Value default_of(const FeatureSpec& spec, const Value& value, const Where& where) {
  if (spec.dtype == "string" || spec.dtype == "bytes") return gin::as<std::string>(value, where);
  if (spec.dtype.starts_with("float")) return gin::as<double>(value, where);
  return gin::as<int64_t>(value, where);
}

FeatureSpec feature_spec(const Arguments& a) {
  FeatureSpec spec;
  const Value dtype = a.value("dtype");
  spec.dtype = gin::as<std::string>(dtype, a.where("dtype"));
  if (spec.dtype.starts_with("tf.")) spec.dtype.erase(0, 3);
  return spec;
}

Value fixed_feature(const Arguments& a) {
  FeatureSpec spec = feature_spec(a);
  spec.shape = a.get<std::vector<int64_t>>("shape");
  const Value fallback = a.value("default_value");
  if (!fallback.is_none()) spec.fallback = default_of(spec, fallback, a.where("default_value"));
  return Value::object(std::make_shared<const FeatureSpec>(std::move(spec)));
}

Value sequence_feature(const Arguments& a) {
  FeatureSpec spec = feature_spec(a);
  spec.shape = {-1};
  if (a.target().find("shape") != nullptr)
    for (int64_t size : a.get<std::vector<int64_t>>("shape")) spec.shape.push_back(size);
  return Value::object(std::make_shared<const FeatureSpec>(std::move(spec)));
}

/// {'inputs': 'string', 'ids': 'int32[]', 'audio': @tf.io.FixedLenFeature()}; None: all there are.
std::vector<FeatureSpec> feature_specs(const Arguments& a) {
  std::vector<FeatureSpec> specs;
  const Value description = a.value("feature_description");
  if (description.is_none()) return specs;
  for (const auto& [name, value] : gin::as<std::vector<std::pair<std::string, Value>>>(
           description, a.where("feature_description"))) {
    const Where where = a.where("feature_description").key(name);
    if (const auto spec = value.object_as<const FeatureSpec>()) {
      specs.push_back(*spec);
      specs.back().name = name;
    } else {
      specs.push_back(parse_feature_spec(name, gin::as<std::string>(value, where)));
    }
  }
  return specs;
}

/// What a seqio.FileDataSource's files hold.
enum class FileKind { lines, examples };

DataSourcePtr make_file_source(const Arguments& a) {
  const auto kind = object_or_made<FileKind>(
      a.value("read_file_fn"), a.where("read_file_fn"),
      "@tf.data.TextLineDataset or @tf.data.TFRecordDataset (of tf.Example)");
  if (kind == FileKind::lines)
    return std::make_shared<TextLineDataSource>(split_to_files(a), file_options(a));
  return std::make_shared<TFExampleDataSource>(split_to_files(a), std::vector<FeatureSpec>{},
                                               file_options(a));
}

/// Some of the splits of a source that a function makes.
class FunctionSplits final : public DataSource {
 public:
  FunctionSplits(DataSourcePtr source, std::vector<std::string> splits)
      : source_(std::move(source)), splits_(std::move(splits)) {}
  std::vector<std::string> splits() const override { return splits_; }
  std::shared_ptr<const Reader> open(const std::string& split) const override {
    return source_->open(split);
  }
  int64_t num_shards(const std::string& split) const override { return source_->num_shards(split); }

 private:
  DataSourcePtr source_;
  std::vector<std::string> splits_;
};

DataSourcePtr make_function_source(const Arguments& a) {
  auto source = object_or_made<DataSourcePtr>(
      a.value("dataset_fn"), a.where("dataset_fn"),
      "a function that makes examples, such as @quintet.data.NumberWordsDataSource");
  QT_CHECK(source != nullptr, "{}: expected a function that makes examples, found None",
           a.where("dataset_fn").text);
  return std::make_shared<FunctionSplits>(std::move(source),
                                          a.get<std::vector<std::string>>("splits"));
}

struct SkipDecoding {};

/// {'image': @tfds.decode.SkipDecoding(), 'answers': {'text': None}}
TfdsTree decoder_tree(const Value& value, const Where& where) {
  TfdsTree tree{.where = where.text};
  if (const auto* dict = value.get_if<gin::Dict>()) {
    for (const auto& [key, item] : dict->items) {
      const auto name = gin::as<std::string>(key, where);
      tree.children.emplace_back(name, decoder_tree(item, where.key(name)));
    }
  } else if (!value.is_none()) {
    tree.value = value.object_as<SkipDecoding>() != nullptr;
    if (!tree.value)
      gin::conversion_error(where, "@tfds.decode.SkipDecoding(), or a dictionary of it", value);
  }
  return tree;
}

/// True, ['id', 'answers'] or {'id': True, 'answers': ['text'], 'image': False}.
TfdsTree feature_tree(const Value& value, const Where& where) {
  TfdsTree tree{.where = where.text};
  if (const auto* dict = value.get_if<gin::Dict>()) {
    for (const auto& [key, item] : dict->items) {
      const auto name = gin::as<std::string>(key, where);
      TfdsTree child = feature_tree(item, where.key(name));
      if (child.value || !child.children.empty())
        tree.children.emplace_back(name, std::move(child));
    }
  } else if (gin::sequence(value) != nullptr) {
    for (const auto& name : gin::as<std::vector<std::string>>(value, where))
      tree.children.emplace_back(name, TfdsTree{.where = where.text, .value = true});
  } else if (const bool* taken = value.get_if<bool>()) {
    tree.value = *taken;
  } else {
    gin::conversion_error(where, "True, False, a list of features or a dictionary of these", value);
  }
  return tree;
}

TfdsDecoders partial_decoding(const Arguments& a) {
  TfdsDecoders decoders{.features = feature_tree(a.value("features"), a.where("features")),
                        .skipped = decoder_tree(a.value("decoders"), a.where("decoders"))};
  QT_CHECK(decoders.features->value || !decoders.features->children.empty(), "{}: names no feature",
           decoders.features->where);
  return decoders;
}

std::shared_ptr<const TfdsDecoders> tfds_decoders(const Arguments& a) {
  const Value value = a.value("decoders");
  if (auto partial = value.object_as<TfdsDecoders>()) return partial;
  if (value.is_none()) return nullptr;
  return std::make_shared<const TfdsDecoders>(
      TfdsDecoders{.features = {}, .skipped = decoder_tree(value, a.where("decoders"))});
}

/// ['train', 'test'], {'validation': 'train[:1%]'} or None.
TfdsDataSource::Splits tfds_splits(const Arguments& a) {
  const Value value = a.value("splits");
  TfdsDataSource::Splits splits;
  if (value.is_none()) return splits;
  if (gin::sequence(value) == nullptr)
    return gin::as<TfdsDataSource::Splits>(value, a.where("splits"));
  for (const auto& name : gin::as<std::vector<std::string>>(value, a.where("splits")))
    splits.emplace_back(name, name);
  return splits;
}

/// seqio.TfdsSplit: a split or slice of a data set of its own.
struct TfdsSplit {
  std::string dataset, split;
  std::optional<std::string> data_dir = {};
};

/// Splits that are of different data sets.
class SplitsOfDataSets final : public DataSource {
 public:
  using Sources = std::vector<std::pair<std::string, DataSourcePtr>>;
  explicit SplitsOfDataSets(Sources sources) : sources_(std::move(sources)) {}
  std::vector<std::string> splits() const override {
    std::vector<std::string> names;
    for (const auto& [split, source] : sources_) names.push_back(split);
    return names;
  }
  std::shared_ptr<const Reader> open(const std::string& split) const override {
    return of(split).open(split);
  }
  std::shared_ptr<const Reader> open_shard(const std::string& split,
                                           const ShardInfo& shard) const override {
    return of(split).open_shard(split, shard);
  }
  int64_t num_shards(const std::string& split) const override {
    return of(split).num_shards(split);
  }

 private:
  const DataSource& of(const std::string& name) const {
    for (const auto& [split, source] : sources_)
      if (split == name) return *source;
    fail(ExitCode::kData, "unknown split '{}'; the source has {}", name, fmt::join(splits(), ", "));
  }
  Sources sources_;
};

/// {'validation': @a/seqio.TfdsSplit()}; none: another value of `splits`.
DataSourcePtr splits_of_data_sets(const Arguments& a) {
  const Value value = a.value("splits");
  if (value.is_none() || gin::sequence(value) != nullptr) return nullptr;
  const Where where = a.where("splits");
  const auto items = gin::as<std::vector<std::pair<std::string, Value>>>(value, where);
  if (std::none_of(items.begin(), items.end(), [](const auto& item) {
        return item.second.template object_as<const TfdsSplit>();
      }))
    return nullptr;
  QT_CHECK(!a.get<std::optional<std::string>>("tfds_name"),
           "{}: tfds_name must be None where splits are TfdsSplits, which name data sets",
           a.where("tfds_name").text);
  SplitsOfDataSets::Sources sources;
  for (const auto& [name, item] : items) {
    const auto split = item.object_as<const TfdsSplit>();
    if (split == nullptr)
      gin::conversion_error(where.key(name), "@seqio.TfdsSplit(), as others", item);
    const auto folder = a.get<std::optional<std::string>>("tfds_data_dir");
    sources.emplace_back(
        name, std::make_shared<TfdsDataSource>(
                  split->dataset, split->data_dir ? *split->data_dir : folder.value_or(""),
                  TfdsDataSource::Splits{{name, split->split}},
                  a.get<OnBadExample>("on_bad_example"), tfds_decoders(a)));
  }
  return std::make_shared<SplitsOfDataSets>(std::move(sources));
}

DataSourcePtr make_tfds_source(const Arguments& a) {
  if (DataSourcePtr several = splits_of_data_sets(a)) return several;
  const auto text = [&](const char* name) {
    return a.get<std::optional<std::string>>(name).value_or("");
  };
  return std::make_shared<TfdsDataSource>(text("tfds_name"), text("tfds_data_dir"), tfds_splits(a),
                                          a.get<OnBadExample>("on_bad_example"), tfds_decoders(a));
}

void register_tfds(Registry& r) {
  r.add("seqio.dataset_providers.TfdsDataSource",
        {{"tfds_name", nullptr},
         {"tfds_data_dir", nullptr},
         {"splits", nullptr},
         {"on_bad_example", "fail"},
         {"caching_permitted", true},
         {"decoders", nullptr},
         {"tfds_builder_kwargs", nullptr},
         {"read_only", false}},
        [](const Arguments& a) { return gin::to_value(make_tfds_source(a)); });
  r.add("tfds.decode.SkipDecoding", {},
        [](const Arguments&) { return gin::to_value(SkipDecoding{}); });
  r.add("tfds.decode.PartialDecoding", {"features", {"decoders", nullptr}},
        [](const Arguments& a) { return gin::to_value(partial_decoding(a)); });
  for (const char* name : {"SkipDecoding", "PartialDecoding"})
    r.add_alias(std::string("tensorflow_datasets.decode.") + name,
                std::string("tfds.decode.") + name);
  r.add("seqio.utils.TfdsSplit", {"dataset", "split", {"data_dir", nullptr}},
        [](const Arguments& a) {
          return gin::Value::object(std::make_shared<const TfdsSplit>(
              TfdsSplit{.dataset = a.get<std::string>("dataset"),
                        .split = a.get<std::string>("split"),
                        .data_dir = a.get<std::optional<std::string>>("data_dir")}));
        });
  r.add_alias("seqio.TfdsSplit", "seqio.utils.TfdsSplit");
}

/// Those that seqio does not have.
void register_our_sources(Registry& r) {
  r.add("quintet.data.TsvDataSource",
        file_params({{"field_names", gin::list_of({"inputs", "targets"})}}),
        [](const Arguments& a) {
          return gin::to_value(DataSourcePtr(std::make_shared<TsvDataSource>(
              split_to_files(a), a.get<std::vector<std::string>>("field_names"), file_options(a))));
        });
  r.add("quintet.data.CsvDataSource", file_params({{"delimiter", ","}, {"quoted", true}}),
        [](const Arguments& a) {
          const auto delimiter = a.get<std::string>("delimiter");
          QT_CHECK(delimiter.size() == 1 && delimiter != "\"" && delimiter != "\n",
                   "{}: expected one character, such as ',' or '\\t', found '{}'",
                   a.where("delimiter").text, delimiter);
          return gin::to_value(DataSourcePtr(std::make_shared<CsvDataSource>(
              split_to_files(a), delimiter[0], a.get<bool>("quoted"), file_options(a))));
        });
  r.add("quintet.data.JsonlDataSource", file_params({{"fields", gin::list_of({})}}),
        [](const Arguments& a) {
          return gin::to_value(DataSourcePtr(std::make_shared<JsonlDataSource>(
              split_to_files(a), a.get<std::vector<std::string>>("fields"), file_options(a))));
        });
  r.add_function("quintet.data.HoldOutDataSource",
                 [](DataSourcePtr source, int64_t every, std::string split) -> DataSourcePtr {
                   return std::make_shared<HoldOutDataSource>(std::move(source), every,
                                                              std::move(split));
                 },
                 {"source", {"every", 20}, {"split", "train"}});
  const NumberWords numbers;
  r.add_function("quintet.data.NumberWordsDataSource",
                 [](int64_t largest, double by_digits_fraction, int64_t evaluation_examples,
                    bool to_words, std::string prefix) {
                   return number_words_source({.largest = largest,
                                               .by_digits_fraction = by_digits_fraction,
                                               .evaluation_examples = evaluation_examples,
                                               .to_words = to_words,
                                               .prefix = std::move(prefix)});
                 },
                 {{"largest", numbers.largest},
                  {"by_digits_fraction", numbers.by_digits_fraction},
                  {"evaluation_examples", numbers.evaluation_examples},
                  {"to_words", numbers.to_words},
                  {"prefix", numbers.prefix}});
}

}  // namespace

void register_sources(Registry& r) {
  const Param internal_shuffling = {"performs_internal_shuffling", false};
  r.add("seqio.dataset_providers.TextLineDataSource", file_params(), [](const Arguments& a) {
    return gin::to_value(
        DataSourcePtr(std::make_shared<TextLineDataSource>(split_to_files(a), file_options(a))));
  });
  r.add("seqio.dataset_providers.TFExampleDataSource",
        file_params({"feature_description", {"reader_cls", nullptr}, internal_shuffling}),
        [](const Arguments& a) {
          return gin::to_value(DataSourcePtr(std::make_shared<TFExampleDataSource>(
              split_to_files(a), feature_specs(a), file_options(a))));
        });
  r.add("seqio.dataset_providers.FileDataSource", file_params({"read_file_fn", internal_shuffling}),
        [](const Arguments& a) { return gin::to_value(make_file_source(a)); });
  r.add("seqio.dataset_providers.ProtoDataSource",
        file_params({"decode_proto_fn", {"reader_cls", nullptr}}), [](const Arguments& a) {
          const auto decode = object_or_made<FileDataSource::ParseRecord>(
              a.value("decode_proto_fn"), a.where("decode_proto_fn"),
              "a function of bytes, such as @quintet.data.ProcessDecoder()");
          return gin::to_value(DataSourcePtr(
              std::make_shared<RecordDataSource>(split_to_files(a), decode, file_options(a))));
        });
  r.add("seqio.dataset_providers.FunctionDataSource",
        {"dataset_fn", "splits", {"num_input_examples", nullptr}, {"caching_permitted", true}},
        [](const Arguments& a) { return gin::to_value(make_function_source(a)); });
  for (const auto& [name, kind] : {std::pair("tf.data.TextLineDataset", FileKind::lines),
                                   std::pair("tf.data.TFRecordDataset", FileKind::examples)})
    r.add(name, {}, [kind](const Arguments&) {
      return gin::Value::object(std::make_shared<const FileKind>(kind));
    });
  register_tfds(r);
  r.add("tf.io.FixedLenFeature", {"shape", "dtype", {"default_value", nullptr}}, fixed_feature);
  r.add("tf.io.FixedLenSequenceFeature",
        {"shape", "dtype", {"allow_missing", false}, {"default_value", nullptr}}, sequence_feature);
  r.add("tf.io.VarLenFeature", {"dtype"}, sequence_feature);
  for (const char* name : {"FixedLenFeature", "FixedLenSequenceFeature", "VarLenFeature"})
    r.add_alias(std::string("tensorflow.io.") + name, std::string("tf.io.") + name);
  for (const char* name : {"TextLineDataSource", "TFExampleDataSource", "TfdsDataSource",
                           "ProtoDataSource", "FileDataSource", "FunctionDataSource"})
    r.add_alias(std::string("seqio.") + name, std::string("seqio.dataset_providers.") + name);
  register_our_sources(r);
}

}  // namespace quintet::data
