#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/json.h"

namespace quintet {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;

DType dtype_from_tag(const Json& tag) {
  static const std::map<std::string, DType> kTags = {
      {"F32", DType::f32}, {"F64", DType::f64}, {"F16", DType::f16}, {"BF16", DType::bf16},
      {"I32", DType::i32}, {"I64", DType::i64}, {"U8", DType::u8},   {"I8", DType::i8},
      {"U32", DType::u32}, {"BOOL", DType::boolean}};
  const auto found = kTags.find(tag.as_string());
  QT_CHECK_AS(ExitCode::kData, found != kTags.end(), "{}: unsupported dtype {}", tag.path(),
              tag.as_string());
  return found->second;
}

struct Entry {
  std::string name;
  HostArray array;  // bytes not yet filled
  uint64_t begin, end;
};

Entry parse_entry(const std::string& name, const Json& json, uint64_t payload) {
  Entry entry{name, {}, 0, 0};
  entry.array.dtype = dtype_from_tag(json["dtype"]);
  entry.array.shape = json["shape"].as_ints();
  uint64_t bytes = static_cast<uint64_t>(size_of(entry.array.dtype));
  for (int64_t size : entry.array.shape) {
    QT_CHECK_AS(ExitCode::kData,
                size >= 0 && !__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes),
                "{}: shape is negative or too large", json.path());
  }
  const auto offsets = json["data_offsets"].as_ints();
  QT_CHECK_AS(ExitCode::kData,
              offsets.size() == 2 && offsets[0] >= 0 && offsets[0] <= offsets[1] &&
                  static_cast<uint64_t>(offsets[1]) <= payload,
              "{}: data_offsets outside the file's {} bytes of data", json.path(), payload);
  entry.begin = static_cast<uint64_t>(offsets[0]);
  entry.end = static_cast<uint64_t>(offsets[1]);
  QT_CHECK_AS(ExitCode::kData, entry.end - entry.begin == bytes,
              "{}: holds {} bytes, shape and dtype need {}", json.path(), entry.end - entry.begin,
              bytes);
  return entry;
}

}  // namespace

HostArrays read_safetensors(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  uint64_t header = 0;
  QT_CHECK_AS(ExitCode::kData, text.size() >= 8, "{}: {} bytes, too short for safetensors",
              file.string(), text.size());
  std::memcpy(&header, text.data(), 8);
  QT_CHECK_AS(ExitCode::kData, header <= kMaxHeader && header <= text.size() - 8,
              "{}: header of {} bytes does not fit the file of {}; not safetensors or cut short",
              file.string(), header, text.size());
  const uint64_t payload = text.size() - 8 - header;

  std::vector<Entry> entries;
  for (const auto& [name, json] :
       Json::parse(std::string_view(text).substr(8, header), file.string()).members())
    if (name != "__metadata__") entries.push_back(parse_entry(name, json, payload));

  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t at = 0;
  HostArrays arrays;
  for (Entry& entry : entries) {
    QT_CHECK_AS(ExitCode::kData, entry.begin == at, "{}: tensor '{}' starts at {}, expected {}",
                file.string(), entry.name, entry.begin, at);
    const auto* data = reinterpret_cast<const std::byte*>(text.data()) + 8 + header + entry.begin;
    entry.array.bytes.assign(data, data + (entry.end - entry.begin));
    at = entry.end;
    arrays.emplace(entry.name, std::move(entry.array));
  }
  QT_CHECK_AS(ExitCode::kData, at == payload, "{}: {} bytes after the last tensor", file.string(),
              payload - at);
  return arrays;
}

}  // namespace quintet
