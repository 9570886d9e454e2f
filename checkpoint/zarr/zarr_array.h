#pragma once
// An array of zarr format 2 as T5X and Orbax store them: metadata in JSON and a chunk of elements a key,
// wherever the keys lie (files of a folder, an OCDBT store).
//
//   const zarr::Array array(json, zarr::files_in(folder), folder / ".zarray");
//   array.read({0, 0}, array.shape(), pointer);
//
// Of the compressors, gzip (and zlib) have a checksum of what they hold; zstd as TensorStore writes it has none.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/bytes/decompress.h"
#include "runtime/base/dtype.h"

namespace quintet::zarr {

/// A chunk as it is stored.
struct Chunk {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner = {};  // the bytes stay for as long as it
};
/// By its key, "0.3"; nullopt: not stored, so that the chunk holds the fill value, if there is one.
using Chunks = std::function<std::optional<Chunk>(const std::string& key)>;

/// Chunks that are files of a folder, mapped while they are read.
Chunks files_in(std::filesystem::path folder);

class Array {
 public:
  /// `metadata`: the bytes of .zarray. `where` names them in messages. Throws ExitCode::kData naming the
  /// field: a type, compressor, filter or order that is not read, sizes that no array has.
  Array(std::string_view metadata, Chunks chunks, std::string where);

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }

  /// Elements [origin, origin + sizes), which lie inside, row-major and dense to `target`. Throws
  /// ExitCode::kData naming the chunk that is damaged. Needs the memory of a chunk.
  void read(const std::vector<int64_t>& origin, const std::vector<int64_t>& sizes,
            std::byte* target) const;
  /// Reads every chunk; gives how many elements are not finite.
  int64_t verify() const;

 private:
  using Index = std::vector<int64_t>;
  void check_sizes() const;
  bool is_in_one_run(const Index& block, const Index& sizes) const;
  void read_chunk(const Index& chunk, const Index& origin, const Index& sizes,
                  std::byte* target) const;
  /// Of each chunk that has elements in the region.
  void for_each_chunk(const Index& origin, const Index& sizes,
                      const std::function<void(const Index&)>& visit) const;
  std::string key_of(const Index& chunk) const;
  int64_t chunk_elements() const;

  Chunks chunks_;
  std::string where_;
  DType dtype_ = DType::f32;
  Index shape_, chunk_shape_;
  Codec codec_ = Codec::none;
  std::vector<std::byte> fill_;  // one element; empty: every chunk is stored
  bool column_major_ = false;
  char separator_ = '.';
};

}  // namespace quintet::zarr
