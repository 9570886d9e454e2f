#include "checkpoint/safetensors.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "checkpoint/manifest.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/crc32c.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

constexpr uint64_t kDataAlignment = 8;  // of the data, so that it can be mapped
constexpr std::string_view kCrcPrefix = "crc32c:";
constexpr std::string_view kHeaderCrc = "crc32c";
constexpr std::string_view kNoDigits = "00000000";
constexpr std::string_view kHeaderCrcText =
    "\"crc32c\":\"";  // quotes in names are escaped: no other

struct Tag {
  std::string_view text;
  DType dtype;
};
constexpr Tag kTags[] = {{"F32", DType::f32},     {"F64", DType::f64}, {"F16", DType::f16},
                         {"BF16", DType::bf16},   {"I32", DType::i32}, {"I64", DType::i64},
                         {"U8", DType::u8},       {"I8", DType::i8},   {"U32", DType::u32},
                         {"BOOL", DType::boolean}};

DType dtype_from_tag(const Json& tag) {
  for (const Tag& known : kTags)
    if (tag.as_string() == known.text) return known.dtype;
  fail(ExitCode::kData, "{}: unsupported dtype {}", tag.path(), tag.as_string());
}

std::string_view tag_of(DType dtype) {
  for (const Tag& known : kTags)
    if (dtype == known.dtype) return known.text;
  throw Bug("safetensors: dtype without a tag");
}

SafetensorsEntry parse_entry(const std::string& name, const Json& json, int64_t data_bytes) {
  SafetensorsEntry entry{name, dtype_from_tag(json["dtype"]), json["shape"].as_ints(), 0, 0};
  const int64_t bytes = checked_bytes(entry.dtype, entry.shape, json.path());
  const auto offsets = json["data_offsets"].as_ints();
  QT_CHECK_AS(ExitCode::kData,
              offsets.size() == 2 && offsets[0] >= 0 && offsets[0] <= offsets[1] &&
                  offsets[1] <= data_bytes,
              "{}: data_offsets outside the file's {} bytes of data", json.path(), data_bytes);
  entry.begin = offsets[0];
  entry.end = offsets[1];
  QT_CHECK_AS(ExitCode::kData, entry.end - entry.begin == bytes,
              "{}: holds {} bytes, shape and dtype need {}", json.path(), entry.end - entry.begin,
              bytes);
  return entry;
}

std::string digits_of(uint32_t crc) { return fmt::format("{:08x}", crc); }

void check_crc(const SafetensorsEntry& entry, const HostArray& array,
               const SafetensorsMetadata& metadata, const std::filesystem::path& file) {
  const auto expected = metadata.find(std::string(kCrcPrefix) + entry.name);
  if (expected == metadata.end()) return;
  const std::string found = digits_of(crc32c(array.bytes));
  QT_CHECK_AS(ExitCode::kData, found == expected->second,
              "{}: tensor '{}' is damaged: CRC-32C is {}, expected {}", file.string(), entry.name,
              found, expected->second);
}

/// Replaces the header's own CRC in its text by `digits`; what was there, or empty.
std::string exchange_header_crc(std::string& text, const std::string& digits) {
  const size_t at = text.find(kHeaderCrcText);
  if (at == std::string::npos || at + kHeaderCrcText.size() + digits.size() > text.size())
    return "";
  const std::string found = text.substr(at + kHeaderCrcText.size(), digits.size());
  text.replace(at + kHeaderCrcText.size(), digits.size(), digits);
  return found;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes,
                                           const std::string& where) {
  SafetensorsHeader header;
  for (const auto& [name, value] : Json::parse(json, where).members()) {
    if (name != "__metadata__") {
      header.entries.push_back(parse_entry(name, value, data_bytes));
      continue;
    }
    for (const auto& [key, text] : value.members()) header.metadata[key] = text.as_string();
  }
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  int64_t at = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    QT_CHECK_AS(ExitCode::kData, entry.begin == at, "{}: tensor '{}' starts at {}, expected {}",
                where, entry.name, entry.begin, at);
    at = entry.end;
  }
  QT_CHECK_AS(ExitCode::kData, at == data_bytes, "{}: {} bytes after the last tensor", where,
              data_bytes - at);
  return header;
}

void check_safetensors_header(std::string text, const SafetensorsHeader& header,
                              const std::filesystem::path& file) {
  const SafetensorsMetadata& metadata = header.metadata;
  const auto first = metadata.lower_bound(std::string(kHeaderCrc));
  if (first == metadata.end() || !first->first.starts_with(kHeaderCrc)) return;  // not from us
  const std::string expected = exchange_header_crc(text, std::string(kNoDigits));
  const std::string found = digits_of(crc32c(text));
  QT_CHECK_AS(ExitCode::kData, found == expected,
              "{}: the header is damaged: CRC-32C is {}, expected {}", file.string(), found,
              expected.empty() ? "none" : expected);
}

std::optional<uint32_t> safetensors_crc(const SafetensorsHeader& header,
                                        const std::string& tensor) {
  const auto found = header.metadata.find(std::string(kCrcPrefix) + tensor);
  if (found == header.metadata.end()) return std::nullopt;
  const std::string& digits = found->second;
  uint32_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

SafetensorsFile read_safetensors_file(const std::filesystem::path& path) {
  // A link is fine here, as in a Hugging Face cache.
  const File file = File::open_read(
      std::filesystem::is_symlink(path) ? std::filesystem::weakly_canonical(path) : path);
  const auto size = static_cast<uint64_t>(file.size());
  uint64_t header_bytes = 0;
  QT_CHECK_AS(ExitCode::kData, size >= 8, "{}: {} bytes, too short for safetensors", path.string(),
              size);
  file.read_at(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  QT_CHECK_AS(ExitCode::kData, header_bytes <= kMaxSafetensorsHeader && header_bytes <= size - 8,
              "{}: header of {} bytes does not fit the file of {}; not safetensors or cut short",
              path.string(), header_bytes, size);
  std::string text(header_bytes, '\0');
  file.read_at(8, std::as_writable_bytes(std::span(text)));
  SafetensorsHeader header =
      parse_safetensors_header(text, static_cast<int64_t>(size - 8 - header_bytes), path.string());
  check_safetensors_header(std::move(text), header, path);
  SafetensorsFile result;
  for (const SafetensorsEntry& entry : header.entries) {
    HostArray array(entry.dtype, entry.shape);
    file.read_at(static_cast<int64_t>(8 + header_bytes) + entry.begin, array.bytes);
    check_crc(entry, array, header.metadata, path);
    result.arrays.emplace(entry.name, std::move(array));
  }
  std::erase_if(header.metadata,
                [](const auto& item) { return item.first.starts_with(kHeaderCrc); });
  result.metadata = std::move(header.metadata);
  return result;
}

HostArrays read_safetensors(const std::filesystem::path& file) {
  return read_safetensors_file(file).arrays;
}

std::string make_safetensors_header(std::vector<SafetensorsEntry>& tensors,
                                    SafetensorsMetadata metadata, const std::string& where) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return std::pair(-size_of(a.dtype), std::string_view(a.name)) <
                            std::pair(-size_of(b.dtype), std::string_view(b.name));
                   });
  for (const auto& [key, text] : metadata)
    QT_CHECK(!key.starts_with(kHeaderCrc), "{}: metadata '{}' is a name of our checksums", where,
             key);
  for (const SafetensorsEntry& tensor : tensors)
    metadata[std::string(kCrcPrefix) + tensor.name] = kNoDigits;
  metadata[std::string(kHeaderCrc)] = kNoDigits;
  nlohmann::ordered_json header;
  header["__metadata__"] = metadata;
  int64_t at = 0;
  for (SafetensorsEntry& tensor : tensors) {
    QT_CHECK(tensor.name != "__metadata__", "{}: '__metadata__' cannot be a tensor's name", where);
    tensor.begin = at;
    tensor.end = at += checked_bytes(tensor.dtype, tensor.shape, tensor.name);
    append_member(header, tensor.name,
                  {{"dtype", tag_of(tensor.dtype)},
                   {"shape", tensor.shape},
                   {"data_offsets", {tensor.begin, tensor.end}}});
  }
  try {
    std::string text = header.dump();
    text.resize((text.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment, ' ');
    return text;
  } catch (const nlohmann::json::exception&) {
    fail(ExitCode::kUsage, "{}: a name or metadata text is not valid UTF-8", where);
  }
}

std::map<std::string, size_t> safetensors_crc_places(std::string_view header,
                                                     const std::vector<SafetensorsEntry>& tensors) {
  std::map<std::string, size_t> places;
  for (const SafetensorsEntry& tensor : tensors) places[tensor.name] = 0;
  size_t at = 0;
  for (auto& [name, place] : places) {  // the metadata has them in this order
    const std::string key = nlohmann::json(std::string(kCrcPrefix) + name).dump() + ":\"";
    at = header.find(key, at);
    QT_ASSERT(at != std::string_view::npos);
    place = at += key.size();
  }
  return places;
}

void sign_safetensors_header(std::string& header) {
  exchange_header_crc(header, std::string(kNoDigits));
  exchange_header_crc(header, digits_of(crc32c(header)));
}

void write_safetensors(const std::filesystem::path& file, const HostArrays& arrays,
                       const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsEntry> tensors;
  for (const auto& [name, array] : arrays) tensors.push_back({name, array.dtype, array.shape});
  std::string header = make_safetensors_header(tensors, metadata, file.string());
  for (const auto& [name, place] : safetensors_crc_places(header, tensors))
    header.replace(place, kNoDigits.size(), digits_of(crc32c(arrays.at(name).bytes)));
  sign_safetensors_header(header);
  const uint64_t header_bytes = header.size();
  std::vector<std::span<const std::byte>> pieces{std::as_bytes(std::span(&header_bytes, 1)),
                                                 std::as_bytes(std::span(header))};
  for (const SafetensorsEntry& tensor : tensors) pieces.emplace_back(arrays.at(tensor.name).bytes);
  atomic_write_file(file, pieces);
}

}  // namespace quintet
