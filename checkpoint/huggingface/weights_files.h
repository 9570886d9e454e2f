#pragma once
// The weights in a Hugging Face directory: the files that hold them, mapped, whatever their format and
// number.
//
//   const WeightsFiles weights(folder);
//   weights.tensors().at("shared.weight");

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/arrays/mapped_file.h"

namespace quintet::huggingface {

class WeightsFiles {
 public:
  /// The first of model.safetensors, model.safetensors.index.json, pytorch_model.bin, its index,
  /// flax_model.msgpack and its index. Throws ExitCode::kData naming the folder if there is none, a file
  /// that is missing or damaged, or a tensor that the index and the files disagree about.
  explicit WeightsFiles(const std::filesystem::path& folder);
  /// Whether a folder has one of these files.
  static bool are_in(const std::filesystem::path& folder);

  /// "safetensors", "torch" or "flax".
  const std::string& format() const { return format_; }
  const std::vector<std::unique_ptr<MappedFile>>& files() const { return files_; }
  const FileTensors& tensors() const { return tensors_; }
  int64_t bytes() const;
  /// Lets go of the memory of a tensor's pages.
  void release(const FileTensor& tensor) const;
  /// The same of pages inside a part of a file.
  void release(std::span<const std::byte> part) const;
  /// Compares every `parts`-th tensor from number `part` on with its checksum, if the file has one.
  void verify(int part, int parts) const;

 private:
  void add(const std::filesystem::path& file, FileTensors* into);
  void add_shards(const std::filesystem::path& index);

  std::string format_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  FileTensors tensors_;
};

}  // namespace quintet::huggingface
