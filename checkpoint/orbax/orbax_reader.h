#pragma once
// A checkpoint that Orbax wrote, as T5X does by default: arrays of zarr in an OCDBT store, or in a folder each;
// by T5X's names. Until 2024 Orbax had a msgpack file `checkpoint` beside a store, which names its arrays and may
// hold small ones.
//
//   const orbax::Reader reader("/runs/small/checkpoint_1000");
//   reader.tensors().at("target/token_embedder/embedding");

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/ocdbt/store.h"
#include "checkpoint/t5x/index.h"
#include "checkpoint/zarr/zarr_array.h"

namespace quintet::orbax {

class Reader final : public CheckpointReader {
 public:
  /// checkpoint_<step>, or the item in it that holds the arrays: its `state`. Throws ExitCode::kData naming
  /// file and place: what Store and zarr::Array throw, an array that _METADATA lists and that is not there,
  /// a save that was not finished, zarr's format 3.
  explicit Reader(std::filesystem::path folder);

  int64_t file_bytes() const override { return file_bytes_; }
  std::vector<std::pair<std::string, std::string>> details() const override;
  int64_t step() const override { return step_; }
  using CheckpointReader::verify;
  /// Reads every chunk. Nodes of the store have been compared with their checksums; chunks have none.
  NotFinite verify(int part, int parts) const override;
  bool reading_verifies() const override { return true; }

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override;

 private:
  void add_store();
  void add_folders();
  void add(const std::string& name, zarr::Array array);
  void read_metadata();
  void read_index();
  void check_all_are_there() const;
  int64_t find_step() const;

  std::filesystem::path item_;                 // which the arrays are in
  std::shared_ptr<const ocdbt::Store> store_;  // null: a folder for each array
  std::map<std::string, std::string>
      names_;  // an array's name in the store or folder, its path here
  std::unique_ptr<const MappedFile> index_file_;  // `checkpoint`; null: none
  t5x::Index index_;
  std::map<std::string, zarr::Array> arrays_;
  int64_t file_bytes_ = 0, step_ = 0;
};

}  // namespace quintet::orbax
