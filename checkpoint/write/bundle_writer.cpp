#include "checkpoint/write/bundle_writer.h"

#include <span>

#include "checkpoint/bundle/names.h"
#include "checkpoint/bytes/parallel.h"
#include "checkpoint/safetensors.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet::bundle {
namespace {

class Writer final : public CheckpointWriter {
 public:
  explicit Writer(const WriteRequest& request)
      : path_(request.folder), vocabularies_(request.vocabularies) {
    QT_ASSERT(request.hosts == 1);
    for (const auto& [name, tensor] : request.tensors)
      entries_.push_back({name, tensor.dtype, tensor.shape});
    for (const auto& [file, bytes] : vocabularies_)
      entries_.push_back({std::string(kVocabularyPrefix) + file, DType::u8, {std::ssize(bytes)}});
    header_ = make_safetensors_header(entries_,
                                      {{kVersionKey, kVersion},
                                       {kConfigKey, request.config_text},
                                       {kNameKey, request.name},
                                       {kStateKey, request.state_json},
                                       {kStepKey, std::to_string(request.step)}},
                                      path_.string());
    QT_CHECK(header_.starts_with(kBeginning), "{}: the header's members are in another order",
             path_.string());
    crc_places_ = safetensors_crc_places(header_, entries_);
    for (const SafetensorsEntry& entry : entries_) places_[entry.name] = entry.begin;
  }

  void begin() override {
    file_ = File::create_new(path_);
    file_.reserve(first() + (entries_.empty() ? 0 : entries_.back().end));
    for (const auto& [file, bytes] : vocabularies_)
      put(std::string(kVocabularyPrefix) + file, std::as_bytes(std::span(bytes)));
  }
  void write(const std::string& name, const HostArray& tensor) override { put(name, tensor.bytes); }
  /// The header comes last: without it the file is no bundle.
  void finish() override {
    sign_safetensors_header(header_);
    const uint64_t header_bytes = header_.size();
    file_.write_at(0, std::as_bytes(std::span(&header_bytes, 1)));
    file_.write_at(sizeof(header_bytes), std::as_bytes(std::span(header_)));
    file_.trim();
    file_.sync();
    file_.close_checked();
  }

 private:
  int64_t first() const { return static_cast<int64_t>(sizeof(uint64_t) + header_.size()); }
  void put(const std::string& name, std::span<const std::byte> bytes) {
    file_.write_at(first() + places_.at(name), bytes);
    const std::string digits = fmt::format("{:08x}", crc32c_in_parallel(bytes));
    header_.replace(crc_places_.at(name), digits.size(), digits);
    start_writing_out(file_.descriptor());
  }

  std::filesystem::path path_;
  std::map<std::string, std::string> vocabularies_;
  std::vector<SafetensorsEntry> entries_;
  std::string header_;
  std::map<std::string, size_t> crc_places_;
  std::map<std::string, int64_t> places_;
  File file_;
};

}  // namespace

const WriteFormat& format() {
  static constexpr WriteFormat kFormat = {
      "bundle",
      "a bundle",
      false,
      false,
      true,
      [](const WriteRequest& request) -> std::unique_ptr<CheckpointWriter> {
        return std::make_unique<Writer>(request);
      }};
  return kFormat;
}

}  // namespace quintet::bundle
