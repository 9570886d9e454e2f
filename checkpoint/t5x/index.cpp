#include "checkpoint/t5x/index.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/arrays/msgpack.h"
#include "runtime/base/check.h"

namespace quintet::t5x {
namespace {

using Dict = MsgpackValue::Dict;

constexpr std::string_view kPlaceholder = "PLACEHOLDER://";
constexpr std::string_view kFlaxformerMetadata = "__save_format_metadata__";
// Trees in which the train state lies: T5X's, and one that T5X of 2022 saved with Orbax.
constexpr std::array<std::string_view, 2> kWrappers = {"optimizer", "_optimizer"};
constexpr size_t kLongestPath = 1000;

/// NumPy's names as zarr writes them.
constexpr std::pair<std::string_view, std::string_view> kDTypes[] = {
    {"float32", "<f4"}, {"bfloat16", "bfloat16"}, {"float16", "<f2"}, {"float64", "<f8"},
    {"int32", "<i4"},   {"int64", "<i8"},         {"uint8", "|u1"},   {"int8", "|i1"},
    {"uint32", "<u4"},  {"uint16", "<u2"},        {"bool", "|b1"}};

class Walker {
 public:
  Walker(Index& index, const std::string& where) : index_(index), where_(where) {}

  void walk(const MsgpackValue& value, const std::string& path) {
    if (value.as<std::monostate>() != nullptr) return;  // a parameter that no optimizer updates
    if (value.find("driver") != nullptr && value.find("kvstore") != nullptr)
      return add(path, spec(value, path));
    if (const auto* members = value.as<Dict>()) {
      for (const auto& [key, member] : *members)
        if (key != kFlaxformerMetadata) walk(member, joined(path, key));
      return;
    }
    if (const auto* array = value.as<FileTensor>()) return add(path, {.array = *array});
    if (const auto* text = value.as<std::string_view>()) return add(path, placeholder(*text, path));
    if (const auto* number = value.as<int64_t>()) return add(path, integer(*number));
    if (const auto* number = value.as<double>())
      return add(path, scalar(static_cast<float>(*number), DType::f32));
    refuse(path, fmt::format("is {}, expected an array", value.kind()));
  }

 private:
  [[noreturn]] void refuse(const std::string& path, const std::string& what) const {
    fail(ExitCode::kData, "{}: '{}' {}", where_, path, what);
  }
  std::string joined(const std::string& path, std::string_view key) const {
    std::string longer = path.empty() ? std::string(key) : fmt::format("{}/{}", path, key);
    if (key.empty() || longer.size() > kLongestPath)
      refuse(longer.substr(0, 100), "is no name of a parameter");
    return longer;
  }
  void add(const std::string& path, Leaf leaf) {
    if (!index_.leaves.emplace(path, std::move(leaf)).second) refuse(path, "is there twice");
  }

  template <typename T>
  Leaf scalar(T value, DType dtype) const {
    Leaf leaf;
    leaf.number.resize(sizeof value);
    std::memcpy(leaf.number.data(), &value, sizeof value);
    leaf.array = FileTensor::dense(dtype, {}, leaf.number);
    return leaf;
  }
  Leaf integer(int64_t value) const {
    if (value >= std::numeric_limits<int32_t>::min() &&
        value <= std::numeric_limits<int32_t>::max())
      return scalar(static_cast<int32_t>(value), DType::i32);
    return scalar(value, DType::i64);
  }

  /// A folder below that of the file.
  std::string folder(std::string_view name, const std::string& path) const {
    while (name.ends_with('/')) name.remove_suffix(1);
    const bool outside = name.empty() || name.front() == '/' || name == ".." ||
                         name.starts_with("../") || name.ends_with("/..") ||
                         name.find("/../") != std::string_view::npos;
    if (outside || name.find('\0') != std::string_view::npos)
      refuse(path, fmt::format("lies in '{}', expected a folder beside the file", name));
    return std::string(name);
  }
  Leaf placeholder(std::string_view text, const std::string& path) {
    if (!text.starts_with(kPlaceholder))
      refuse(path, fmt::format("is the text '{}', expected an array", text.substr(0, 40)));
    index_.from_orbax = true;
    return {.folder = folder(text.substr(kPlaceholder.size()), path)};
  }

  static std::string_view text_of(const MsgpackValue* value) {
    const auto* text = value == nullptr ? nullptr : value->as<std::string_view>();
    return text == nullptr ? std::string_view() : *text;
  }
  /// TensorStore's description of an array. Before 0.1.14 the path stood outside of "kvstore".
  Leaf spec(const MsgpackValue& value, const std::string& path) const {
    if (text_of(value.find("driver")) != "zarr")
      refuse(path, fmt::format("has driver '{}', expected zarr",
                               text_of(value.find("driver")).substr(0, 40)));
    std::string_view place = text_of(value.find("kvstore")->find("path"));
    if (place.empty()) place = text_of(value.find("path"));
    return {.folder = folder(place, path), .metadata = zarray(value, path)};
  }
  /// The part of .zarray that the index repeats, completed by what T5X never writes otherwise.
  std::string zarray(const MsgpackValue& value, const std::string& path) const {
    const MsgpackValue* metadata = value.find("metadata");
    if (metadata == nullptr || metadata->find("shape") == nullptr ||
        metadata->find("chunks") == nullptr)
      return "";
    const auto* dtype = std::find_if(
        std::begin(kDTypes), std::end(kDTypes),
        [&](const auto& known) { return known.first == text_of(value.find("dtype")); });
    if (dtype == std::end(kDTypes)) return "";
    nlohmann::ordered_json json = {{"zarr_format", 2},      {"dtype", dtype->second},
                                   {"fill_value", nullptr}, {"filters", nullptr},
                                   {"order", "C"},          {"compressor", nullptr}};
    for (const char* sizes : {"shape", "chunks"}) {
      const auto* list = metadata->find(sizes)->as<MsgpackValue::List>();
      if (list == nullptr) refuse(path, fmt::format("has {} that is no list", sizes));
      json[sizes] = nlohmann::ordered_json::array();
      for (const MsgpackValue& size : *list) {
        if (size.as<int64_t>() == nullptr) refuse(path, fmt::format("has {} of no sizes", sizes));
        json[sizes].push_back(*size.as<int64_t>());
      }
    }
    const MsgpackValue* compressor = metadata->find("compressor");
    if (compressor != nullptr && compressor->as<Dict>() != nullptr)
      json["compressor"]["id"] = std::string(text_of(compressor->find("id")).substr(0, 40));
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  Index& index_;
  const std::string& where_;
};

int64_t version_of(const MsgpackValue& root, const std::string& where) {
  const MsgpackValue* version = root.find("version");
  if (version == nullptr) return 0;
  const auto* number = version->as<int64_t>();
  QT_CHECK_AS(ExitCode::kData, number != nullptr && (*number == 2 || *number == 3),
              "{}: is of version {}, expected 2 or 3 (since 2021)", where,
              number == nullptr ? "?" : std::to_string(*number));
  return *number;
}

}  // namespace

Index read_index(std::span<const std::byte> bytes, const std::string& where) {
  const MsgpackValue root = read_msgpack(bytes, where);
  const auto* members = root.as<Dict>();
  QT_CHECK_AS(ExitCode::kData, members != nullptr, "{}: is {}, expected a dictionary", where,
              root.kind());
  Index index;
  index.version = version_of(root, where);
  Walker walker(index, where);
  for (const auto& [key, member] : *members) {
    if (key == "version") continue;
    const bool is_wrapper = std::find(kWrappers.begin(), kWrappers.end(), key) != kWrappers.end();
    walker.walk(member, is_wrapper ? "" : std::string(key));
  }
  QT_CHECK_AS(ExitCode::kData, !index.leaves.empty(), "{}: holds no arrays", where);
  return index;
}

}  // namespace quintet::t5x
