#pragma once
// A checkpoint that T5X's Checkpointer wrote (use_orbax=False, and the published ones), or Orbax before OCDBT:
// a msgpack file that holds small arrays and names the folders of the others, which are zarr. By T5X's names, as
// they are stored.
//
//   const t5x::Reader reader("/runs/small/checkpoint_1000");
//   reader.tensors().at("target/token_embedder/embedding");

#include <memory>
#include <optional>

#include "checkpoint/arrays/mapped_file.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/t5x/index.h"
#include "checkpoint/zarr/zarr_array.h"

namespace quintet::t5x {

class Reader final : public CheckpointReader {
 public:
  /// checkpoint_<step>, the file `checkpoint` in it, or a folder that has both in `state`. Throws
  /// ExitCode::kData naming file and place: what read_index and zarr::Array throw, a folder that is missing or
  /// that the file says something else of.
  explicit Reader(std::filesystem::path path);

  int64_t file_bytes() const override { return file_bytes_; }
  std::vector<std::pair<std::string, std::string>> details() const override;
  int64_t step() const override { return step_; }
  using CheckpointReader::verify;
  /// Reads every array. gzip has a checksum of what it holds; the msgpack file, and arrays that are not
  /// compressed or with zstd, have none.
  NotFinite verify(int part, int parts) const override;
  bool reading_verifies() const override { return true; }

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override;

 private:
  zarr::Array open_array(const std::string& name, const Leaf& leaf) const;
  int64_t find_step() const;

  MappedFile file_;
  Index index_;
  std::map<std::string, zarr::Array> arrays_;  // of the leaves that have a folder
  int64_t file_bytes_ = 0, step_ = 0;
};

}  // namespace quintet::t5x
