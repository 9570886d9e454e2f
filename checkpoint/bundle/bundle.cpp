#include "checkpoint/bundle/bundle.h"

#include <charconv>
#include <cstring>
#include <fstream>

#include "checkpoint/bundle/names.h"
#include "checkpoint/bytes/parallel.h"
#include "runtime/base/check.h"

namespace quintet::bundle {
namespace {

/// The header's text. Throws kData naming the file.
std::string_view header_of(std::span<const std::byte> bytes, const std::string& where) {
  uint64_t size = 0;
  QT_CHECK_AS(ExitCode::kData, bytes.size() >= sizeof(size), "{}: {} bytes, too short for a bundle",
              where, bytes.size());
  std::memcpy(&size, bytes.data(), sizeof(size));
  QT_CHECK_AS(ExitCode::kData, size <= kMaxSafetensorsHeader && size <= bytes.size() - sizeof(size),
              "{}: a header of {} bytes does not fit the file of {}: it is cut short or damaged",
              where, size, bytes.size());
  return {reinterpret_cast<const char*>(bytes.data()) + sizeof(size), size};
}

std::string member(const SafetensorsHeader& header, const std::string& key,
                   const std::string& where) {
  const auto found = header.metadata.find(key);
  QT_CHECK_AS(ExitCode::kData, found != header.metadata.end(), "{}: its header has no '{}'", where,
              key);
  return found->second;
}

int64_t step_of(const std::string& text, const std::string& where) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  QT_CHECK_AS(ExitCode::kData,
              error == std::errc() && end == text.data() + text.size() && step >= 0,
              "{}: step: expected a number, found '{}'", where, text);
  return step;
}

}  // namespace

bool is_at(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::string bytes(sizeof(uint64_t) + kBeginning.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), std::ssize(bytes));
  return file.gcount() == std::ssize(bytes) && bytes.ends_with(kBeginning);
}

Reader::Reader(std::filesystem::path path) : CheckpointReader(std::move(path)), file_(folder_) {
  const std::string where = folder_.string();
  const std::string_view text = header_of(file_.bytes(), where);
  const auto data = file_.bytes().subspan(sizeof(uint64_t) + text.size());
  const SafetensorsHeader header = parse_safetensors_header(text, std::ssize(data), where);
  const std::string version = member(header, kVersionKey, where);
  QT_CHECK_AS(ExitCode::kData, version == kVersion,
              "{}: is a bundle of the format '{}', and this quintet reads '{}': read it with the "
              "quintet that wrote it, or a newer one",
              where, version, kVersion);
  check_safetensors_header(std::string(text), header, folder_);
  config_ = member(header, kConfigKey, where);
  name_ = member(header, kNameKey, where);
  state_json_ = member(header, kStateKey, where);
  step_ = step_of(member(header, kStepKey, where), where);
  for (const SafetensorsEntry& entry : header.entries) {
    const bool is_parameter = entry.name.starts_with(kParameterPrefix);
    QT_CHECK_AS(ExitCode::kData, is_parameter || entry.name.starts_with(kVocabularyPrefix),
                "{}: array '{}' is neither a parameter nor a vocabulary", where, entry.name);
    const auto part = data.subspan(static_cast<size_t>(entry.begin),
                                   static_cast<size_t>(entry.end - entry.begin));
    FileTensor tensor = FileTensor::dense(entry.dtype, entry.shape, part);
    const std::optional<uint32_t> crc = safetensors_crc(header, entry.name);
    QT_CHECK_AS(ExitCode::kData, crc.has_value(), "{}: array '{}' has no checksum", where,
                entry.name);
    tensor.checksum = Checksum{Checksum::Kind::crc32c, *crc, part};
    if (is_parameter) tensors_[entry.name] = {entry.dtype, entry.shape};
    arrays_.emplace(entry.name, std::move(tensor));
  }
}

std::vector<std::pair<std::string, std::string>> Reader::details() const {
  return {{"name", name_}};
}

std::optional<std::string> Reader::vocabulary(const std::string& file) const {
  const std::string name = std::string(kVocabularyPrefix) + file;
  const auto found = arrays_.find(name);
  if (found == arrays_.end()) return std::nullopt;
  check(name, found->second);
  const auto bytes = found->second.pieces.front();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void Reader::check(const std::string& name, const FileTensor& tensor) const {
  const uint32_t found = crc32c_in_parallel(tensor.pieces.front());
  QT_CHECK_AS(ExitCode::kData, found == tensor.checksum->value,
              "{}: '{}' is damaged: CRC-32C is {:08x}, expected {:08x}; export the model again",
              folder_.string(), name, found, tensor.checksum->value);
}

NotFinite Reader::verify(int part, int parts) const {
  NotFinite counts;
  int number = 0;
  for (const auto& [name, tensor] : arrays_) {
    if (number++ % parts != part) continue;
    check(name, tensor);
    if (tensors_.contains(name))
      if (const int64_t count = count_not_finite(tensor.dtype, tensor.pieces.front()))
        counts[name] = count;
    file_.release(tensor.pieces.front());
  }
  return counts;
}

void Reader::read_region(const TensorRegion& region, std::byte* target) const {
  const FileTensor& tensor = arrays_.at(region.name);
  tensor.copy_region(region.origin, region.sizes, target,
                     [&] { file_.release(tensor.pieces.front()); });
}

std::optional<RegionInPlace> Reader::region_in_place(const TensorRegion& region) const {
  const FileTensor& tensor = arrays_.at(region.name);
  const auto bytes = tensor.region_in_place(region.origin, region.sizes);
  if (!bytes) return std::nullopt;
  return RegionInPlace{.values = bytes->data(),
                       .strides = tensor.strides,
                       .pages = {const_cast<std::byte*>(bytes->data()),
                                 [this, part = *bytes](void*) { file_.release(part); }}};
}

}  // namespace quintet::bundle
