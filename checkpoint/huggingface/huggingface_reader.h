#pragma once
// A Hugging Face directory as a checkpoint: its weights by our names, in our shapes, read in place.
//
//   const huggingface::Reader reader("/models/flan-t5-small");
//   reader.tied();   // whether the embeddings are the output projection, too

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/huggingface/config.h"
#include "checkpoint/huggingface/names.h"
#include "checkpoint/huggingface/weights_files.h"

namespace quintet::huggingface {

class Reader final : public CheckpointReader {
 public:
  /// Throws ExitCode::kData naming file and field or tensor: what read_config and WeightsFiles throw, a
  /// parameter that is missing or of another shape or dtype than float32, bfloat16 and float16, tensors
  /// that belong to nothing, and tables of embeddings that ought to be equal and are not.
  explicit Reader(std::filesystem::path folder);

  int64_t file_bytes() const override { return files_.bytes(); }
  std::vector<std::pair<std::string, std::string>> details() const override;
  const Config& config() const { return config_; }
  const WeightsFiles& files() const { return files_; }
  /// Whether our network ties them; else "decoder/logits_dense/kernel" is there. A tied table whose outputs
  /// are not scaled, or a separate one whose are, becomes a kernel of its own.
  bool tied() const { return tied_; }

  using CheckpointReader::verify;
  /// PyTorch's archives and our own safetensors have checksums, other files none. Says nothing of what is
  /// not finite: nothing is read that has no checksum.
  NotFinite verify(int part, int parts) const override;

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override;
  std::optional<RegionInPlace> region_in_place(const TensorRegion& region) const override;

 private:
  struct Source {
    std::vector<FileTensor> parts;  // in our axes; of several each is one of our first axis
    float factor = 1;               // and then float32
  };
  /// Names that a table of embeddings may have.
  std::span<const char* const> tables() const;
  const FileTensor& embeddings() const;
  /// Whether both have the same elements; their pages are let go.
  bool same(const FileTensor& a, const FileTensor& b) const;
  void check_decoder() const;
  void check_embeddings() const;
  bool has_separate_embeddings() const;
  bool has_untied_projection() const;
  void add(const MappedTensor& tensor, float factor);
  void check_nothing_left() const;

  Config config_;
  WeightsFiles files_;
  bool tied_ = true;
  std::map<std::string, Source> sources_;
  std::map<std::string, bool> used_;
};

}  // namespace quintet::huggingface
