#pragma once
// A TensorFlow checkpoint (format V2): an index, PREFIX.index, and the tensors' bytes in PREFIX.data-*-of-*,
// read in place. A tensor may lie there as slices, which variables in several parts are saved as.
//
//   const Bundle bundle("/models/t5/model.ckpt-3");
//   bundle.tensors().at("shared/embedding").shape;

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/arrays/mapped_file.h"
#include "checkpoint/checkpoint_reader.h"

namespace quintet::tensorflow {

/// A block of a tensor, dense in a data file.
struct BundleSlice {
  std::vector<int64_t> origin, sizes;
  std::span<const std::byte> bytes;
  uint32_t crc = 0;  // CRC-32C, masked
};

struct BundleTensor {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<BundleSlice> slices;  // one, or several that tile it
};

class Bundle {
 public:
  /// Throws ExitCode::kData naming file and tensor: what for_each_entry throws, an entry that is no message
  /// of TensorFlow's, a type that is not read, a tensor or slice that lies outside of its file, overlaps
  /// another or is missing, a data file that is not there. Texts (of Keras' object graphs) are left out.
  explicit Bundle(const std::filesystem::path& prefix);
  /// The same of bytes; `shard` gives those of a data file by its number and how many there are. They must
  /// outlive this.
  using Shard = std::function<std::span<const std::byte>(int64_t number, int64_t of)>;
  Bundle(std::span<const std::byte> index, std::string where, const Shard& shard);

  const std::map<std::string, BundleTensor>& tensors() const { return tensors_; }
  int64_t file_bytes() const;
  /// Compares a tensor with its checksums; gives how many elements are not finite. Throws
  /// ExitCode::kData.
  int64_t verify(const std::string& name) const;
  /// Elements of a tensor, row-major and dense.
  void read(const std::string& name, const std::vector<int64_t>& origin,
            const std::vector<int64_t>& sizes, std::byte* target) const;

 private:
  struct Index;
  void read_index(std::span<const std::byte> bytes, const Shard& shard);
  void add(const Index& index, const std::string& name, const std::string& message);
  BundleSlice slice_of(const Index& index, const std::string& name, std::string_view message,
                       DType dtype, std::vector<int64_t> origin, std::vector<int64_t> sizes) const;
  void check_no_overlap() const;
  void release(std::span<const std::byte> bytes) const;

  std::string where_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, BundleTensor> tensors_;
};

}  // namespace quintet::tensorflow
