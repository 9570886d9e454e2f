#include "data/sources/tfds_features.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// A node of features.json.
struct TfdsNode {
  Json json;
  std::string name;
  std::vector<int64_t> outer;          // lengths of the sequences around it
  const TfdsTree* selected = nullptr;  // what names it or a feature within it; null: none does
  const TfdsTree* decoder = nullptr;
};

const TfdsTree* child_of(const TfdsTree* tree, const std::string& name) {
  if (tree != nullptr)
    for (const auto& [key, child] : tree->children)
      if (key == name) return &child;
  return nullptr;
}

std::string dtype_of(const std::string& tfds) {
  if (tfds == "string" || tfds == "bool" || tfds == "int32" || tfds == "int64") return tfds;
  return tfds.starts_with("float") || tfds.starts_with("bfloat") ? "float32" : "int64";
}

std::vector<int64_t> shape_of(const Json& tensor) {
  std::vector<int64_t> shape;
  if (tensor["shape"].has("dimensions"))
    for (const Json& size : tensor["shape"]["dimensions"].items())
      shape.push_back(tfds_number(size, -1));
  return shape;
}

class TfdsFeatures {
 public:
  std::vector<FeatureSpec> specs;

  void add(const TfdsNode& node) {
    const Json& json = node.json;
    if (json.has("featuresDict")) {
      add_children(node, json["featuresDict"]["features"].members());
    } else if (json.has("sequence")) {
      add_sequence(node);
    } else if (json.has("translation")) {
      add_translation(node);
    } else if (json.has("text")) {
      add_values(node, "string");
    } else if (json.has("classLabel")) {
      add_values(node, "int64");
    } else if (json.has("tensor")) {
      add_tensor(node, json["tensor"]);
    } else if (json.has("boundingBox")) {
      add_tensor(node, json["boundingBox"]);
    } else if (json.has("audio")) {
      add_tensor(node, json["audio"]);
    } else if (json.has("image")) {
      add_values(node, "bytes");
    } else if (json.has("video")) {
      const std::vector<int64_t> shape = shape_of(json["video"]);
      if (is_skipped(node))
        add_values(node, "bytes", {shape.empty() ? -1 : shape[0]});
      else
        leave_out(node, "is a video, which is not decoded; read its frames with SkipDecoding");
    } else {
      leave_out(node, "is of a kind that is not read");
    }
  }

 private:
  static bool is_skipped(const TfdsNode& node) {
    return node.decoder != nullptr && node.decoder->value;
  }

  /// For messages; the root has no name.
  static std::string described(const TfdsNode& node) {
    return node.name.empty() ? "the data set" : "feature '" + node.name + "'";
  }

  /// Of a feature that somebody asks for by name, an error.
  static void leave_out(const TfdsNode& node, const char* why) {
    const TfdsTree* asked = is_skipped(node) ? node.decoder : node.selected;
    QT_CHECK(asked == nullptr, "{}: {} of {} {}", asked->where, described(node), node.json.path(),
             why);
  }

  /// What lies in a tf.Example as it is.
  void add_values(const TfdsNode& node, const std::string& dtype,
                  const std::vector<int64_t>& inner = {}, const char* part = "") {
    for (const TfdsTree* tree : {node.selected, node.decoder})
      QT_CHECK(tree == nullptr || tree->children.empty(),
               "{}: feature '{}' of {} has no features of its own", tree->where, node.name,
               node.json.path());
    std::vector<int64_t> shape = node.outer;
    shape.insert(shape.end(), inner.begin(), inner.end());
    if (std::find(shape.begin() + (shape.empty() ? 0 : 1), shape.end(), -1) == shape.end())
      specs.push_back({.name = node.name + part, .dtype = dtype, .shape = std::move(shape)});
    else
      leave_out(node, "is ragged, which is not read");
  }

  void add_tensor(const TfdsNode& node, const Json& tensor) {
    const std::vector<int64_t> shape = shape_of(tensor);
    bool encoded = tensor.has("lazyDecode") && tensor["lazyDecode"].as_bool();
    if (tensor.has("encoding")) {
      std::string name = tensor["encoding"].as_string();
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return std::tolower(c); });
      QT_CHECK_AS(ExitCode::kData, name == "none" || name == "bytes" || name == "zlib",
                  "{}: expected none, bytes or zlib, found '{}'", tensor["encoding"].path(), name);
      encoded |= name != "none";
    }
    if (!encoded) {
      add_values(node, dtype_of(tensor["dtype"].as_string()), shape);
    } else if (!is_skipped(node)) {
      leave_out(node, "is encoded, and not decoded; read it with SkipDecoding");
    } else if (std::count(shape.begin(), shape.end(), -1) > 1) {
      add_values(node, "int32", {std::ssize(shape)}, "/shape");
      add_values(node, "bytes", {}, "/value");
    } else {
      add_values(node, "bytes");
    }
  }

  void add_sequence(const TfdsNode& node) {
    const Json sequence = node.json["sequence"];
    QT_CHECK(
        node.decoder == nullptr || !node.json["pythonClassName"].as_string().ends_with("Dataset"),
        "{}: feature '{}' of {} is a data set of its own, which has no decoders here",
        node.decoder->where, node.name, node.json.path());
    TfdsNode inner = node;
    inner.json = sequence["feature"];
    inner.outer.push_back(sequence.has("length") ? tfds_number(sequence["length"], -1) : -1);
    add(inner);
  }

  void add_translation(const TfdsNode& node) {
    const Json text = Json::parse(R"({"text": {}})", node.json.path());
    std::vector<std::pair<std::string, Json>> texts;
    TfdsNode inner = node;
    if (node.json["pythonClassName"].as_string().ends_with("TranslationVariableLanguages")) {
      inner.outer.push_back(-1);
      for (const char* part : {"language", "translation"}) texts.emplace_back(part, text);
    } else {
      for (const std::string& language : node.json["translation"]["languages"].as_strings())
        texts.emplace_back(language, text);
    }
    add_children(inner, texts);
  }

  static void check_names(const TfdsNode& node, const TfdsTree* tree,
                          const std::vector<std::string>& names) {
    if (tree == nullptr) return;
    for (const auto& [key, child] : tree->children)
      QT_CHECK(std::find(names.begin(), names.end(), key) != names.end(),
               "{}: {} has no feature '{}' that is read; it has {}", child.where, node.json.path(),
               key, fmt::join(names, ", "));
  }

  template <typename Members>
  void add_children(const TfdsNode& node, const Members& members) {
    std::vector<std::string> names;
    for (const auto& [key, child] : members) names.push_back(key);
    check_names(node, node.selected, names);
    if (node.selected != nullptr && !node.selected->value)
      std::erase_if(names,
                    [&](const std::string& n) { return child_of(node.selected, n) == nullptr; });
    QT_CHECK(!is_skipped(node),
             "{}: {} of {} is a dictionary, of which each feature has its decoder: {}",
             node.decoder->where, described(node), node.json.path(), fmt::join(names, ", "));
    check_names(node, node.decoder, names);
    for (const auto& [key, child] : members)
      if (std::find(names.begin(), names.end(), key) != names.end())
        add({.json = child,
             .name = node.name.empty() ? key : node.name + "/" + key,
             .outer = node.outer,
             .selected = child_of(node.selected, key),
             .decoder = child_of(node.decoder, key)});
  }
};

}  // namespace

int64_t tfds_number(const Json& json, int64_t least) {
  constexpr int64_t kMost = int64_t{1} << 48;  // so that sums do not overflow
  int64_t number = 0;
  if (json.is_string()) {
    const std::string text = json.as_string();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    QT_CHECK_AS(ExitCode::kData, error == std::errc() && end == text.data() + text.size(),
                "{}: expected an integer, found '{}'", json.path(), text);
  } else {
    number = json.as_int();
  }
  QT_CHECK_AS(ExitCode::kData, number >= least && number <= kMost,
              "{}: expected {} to {}, found {}", json.path(), least, kMost, number);
  return number;
}

std::vector<FeatureSpec> tfds_features(const Json& json, const TfdsDecoders* decoders) {
  TfdsFeatures features;
  TfdsNode root{.json = json, .name = "", .outer = {}};
  if (decoders != nullptr) {
    root.selected = decoders->features ? &*decoders->features : nullptr;
    root.decoder = &decoders->skipped;
  }
  features.add(root);
  return std::move(features.specs);
}

}  // namespace quintet::data
