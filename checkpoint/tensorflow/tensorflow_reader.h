#pragma once
// A checkpoint that T5 wrote with Mesh TensorFlow, by our names; its optimizer's slots and step, too.
//
//   const tensorflow::Reader reader("/models/t5.1.1.small");   // or .../model.ckpt-1000000

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/tensorflow/bundle.h"

namespace quintet::tensorflow {

/// The prefix of a checkpoint's files: `path` itself, with ".index" or without; of a folder the one that its file
/// `checkpoint` names, or the only one, or that of the highest step. Throws ExitCode::kData if there is none.
std::filesystem::path find_prefix(const std::filesystem::path& path);

class Reader final : public CheckpointReader {
 public:
  /// Throws ExitCode::kData: what Bundle throws, variables that are none of T5's.
  explicit Reader(std::filesystem::path path);

  int64_t file_bytes() const override { return bundle_.file_bytes(); }
  std::vector<std::pair<std::string, std::string>> details() const override;
  int64_t step() const override { return step_; }
  using CheckpointReader::verify;
  /// Every tensor has a CRC-32C.
  NotFinite verify(int part, int parts) const override;

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override;

 private:
  std::filesystem::path prefix_;
  Bundle bundle_;
  std::map<std::string, std::string> theirs_;  // by our names
  int64_t step_ = 0;
};

}  // namespace quintet::tensorflow
