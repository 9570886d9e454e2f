#pragma once
// Writes the weights and config.json of a Hugging Face directory from tensors by our names: safetensors,
// in one file or several, with checksums that other readers ignore.
//
//   huggingface::Writer writer(folder, config, tensors, /*shard_bytes=*/5'000'000'000);

#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/huggingface/config.h"
#include "checkpoint/huggingface/names.h"
#include "checkpoint/safetensors.h"
#include "runtime/base/files/posix_file.h"

namespace quintet::huggingface {

class Writer final : public CheckpointWriter {
 public:
  /// `tensors`: those below "target/" of a model of this configuration. Throws ExitCode::kData naming a
  /// tensor that is missing, belongs to nothing, or has another shape or a dtype that cannot be. A file
  /// has at most `shard_bytes` of tensors, but for one that is larger.
  Writer(std::filesystem::path folder, Config config, const StoredTensors& tensors,
         int64_t shard_bytes);

  void begin() override;
  void write(const std::string& name, const HostArray& tensor) override;
  void finish_share() override;
  void finish() override;

 private:
  /// A file of tensors, theirs. Every host knows all of it; the first makes it.
  struct Shard {
    std::filesystem::path path;
    std::vector<SafetensorsEntry> tensors = {};
    std::string header = {};
    std::map<std::string, size_t> crc_places = {};
    std::optional<File> file = {};  // of a host that wrote to it
  };
  struct Place {
    size_t shard, entry;
  };
  void plan(const std::vector<SafetensorsEntry>& tensors, int64_t shard_bytes);
  File& file_of(Shard& shard);
  void write_part(const FileTensor& part, const std::string& theirs);
  std::string index_text() const;

  std::filesystem::path folder_;
  Config config_;
  DType dtype_ = DType::f32;                    // of all weights; float32 if they differ
  std::map<std::string, MappedTensor> mapped_;  // by "target/" and our name
  std::vector<Shard> shards_;
  std::map<std::string, Place> places_;  // by their name
};

}  // namespace quintet::huggingface
