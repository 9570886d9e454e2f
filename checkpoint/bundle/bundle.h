#pragma once
// A model as one file, which `quintet export` writes and every verb takes for a model: a safetensors file, whose arrays
// other programs read too, with all else that a model is.
//
//   target/<parameter>       as in a checkpoint, quantized ones with target/<parameter>_scale
//   vocabularies/<file>      a vocabulary's file, bytes
//   __metadata__             bundle: "quintet 1", config.gin, state (a checkpoint's: vocabularies, quantized), step, name,
//                            and a CRC-32C of each array and of the header (checkpoint/safetensors.h)
//
//   if (bundle::is_at(path)) bundle::Reader(path).config();

#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/arrays/mapped_file.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/safetensors.h"

namespace quintet::bundle {

/// By its first bytes; true of one of any version, cut short or not.
bool is_at(const std::filesystem::path& path);

class Reader final : public CheckpointReader {
 public:
  /// Maps the file. Throws ExitCode::kData naming it for another version, a header that is damaged or does not fit the
  /// file's size, and an array of a name that is none of a bundle's.
  explicit Reader(std::filesystem::path path);

  int64_t file_bytes() const override { return std::ssize(file_.bytes()); }
  std::vector<std::pair<std::string, std::string>> details() const override;
  int64_t step() const override { return step_; }
  const std::string& state_json() const override { return state_json_; }
  bool is_native() const override { return true; }
  bool is_mapped() const override { return true; }

  /// The text of config.gin, and how clients call the model.
  const std::string& config() const { return config_; }
  const std::string& name() const { return name_; }
  /// A vocabulary's file, compared with its checksum; none: there is none of that name.
  std::optional<std::string> vocabulary(const std::string& file) const;

  using CheckpointReader::verify;
  NotFinite verify(int part, int parts) const override;

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override;
  std::optional<RegionInPlace> region_in_place(const TensorRegion& region) const override;

 private:
  /// Throws kData naming the array if its bytes are not those that were written.
  void check(const std::string& name, const FileTensor& tensor) const;

  MappedFile file_;
  FileTensors arrays_;
  std::string config_, name_, state_json_;
  int64_t step_ = 0;
};

}  // namespace quintet::bundle
