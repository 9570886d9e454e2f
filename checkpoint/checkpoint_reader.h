#pragma once
// What reads the tensors of a checkpoint, whichever program wrote it: names (T5X's parameter paths below
// "target/"), shapes and dtypes, and any region of any tensor.
//
//   const auto checkpoint = open_checkpoint("/models/flan-t5-small");   // checkpoint/open
//   checkpoint->verify();
//   checkpoint->read({"target/token_embedder/embedding", {0, 0}, {8, 512}}, pointer);

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/finite.h"

namespace quintet {

/// What the names of parameters begin with.
inline constexpr std::string_view kParameterPrefix = "target/";
/// The name in a checkpoint of a model's parameter `name`.
inline std::string parameter_key(std::string_view name) {
  return std::string(kParameterPrefix).append(name);
}

struct StoredTensor {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
};

/// A region where it lies in a mapped file. Its pages count as this process's memory until it is gone.
struct RegionInPlace {
  const std::byte* values = nullptr;  // aligned to an element
  std::vector<int64_t> strides;       // of the region's axes, in elements
  std::shared_ptr<void> pages;        // gives them back
};

class CheckpointReader {
 public:
  virtual ~CheckpointReader() = default;

  const std::filesystem::path& folder() const { return folder_; }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  /// Of the files that it reads.
  virtual int64_t file_bytes() const = 0;
  /// What else the files say of themselves, for people: {"model_type", "mt5"}.
  virtual std::vector<std::pair<std::string, std::string>> details() const { return {}; }
  /// Whether arrays lie in a mapped file as they are, so that a part of one costs its share.
  virtual bool is_mapped() const { return false; }
  /// Of the training that wrote it; 0 where the format does not say.
  virtual int64_t step() const { return 0; }
  /// Data position and vocabularies of a run of ours; nothing ("{}") of other programs' checkpoints.
  virtual const std::string& state_json() const;
  /// Whether one of our runs wrote it, with its state.
  virtual bool is_native() const { return false; }

  /// Reads every `parts`-th file or tensor from number `part` on and compares it with the checksums
  /// that the format has. Throws ExitCode::kData naming the first damaged tensor or file. Gives what is
  /// not finite.
  virtual NotFinite verify(int part, int parts) const = 0;
  NotFinite verify() const { return verify(0, 1); }
  /// Whether read() itself finds all that verify() finds: the format's checksums are those of what is
  /// decompressed.
  virtual bool reading_verifies() const { return false; }
  /// Of what is going to be read: verify(), unless reading does it.
  void verify_before_reading(int part = 0, int parts = 1) const {
    if (!reading_verifies()) verify(part, parts);
  }
  /// Where a tensor lies: tensors read in the order of these cost one pass over what is compressed together.
  virtual std::string storage_key(const std::string& name) const { return name; }
  /// Copies a region, row-major and dense, of the tensor's dtype, to `target`. Throws ExitCode::kData if
  /// there is no such tensor, a usage error if the region is not inside it.
  void read(const TensorRegion& region, std::byte* target) const;
  /// The same without a copy; none where elements do not lie in a file as they are: compressed, scaled, in
  /// several pieces, unaligned. Valid while this reader lives. Throws as read() does.
  std::optional<RegionInPlace> in_place(const TensorRegion& region) const;

 protected:
  explicit CheckpointReader(std::filesystem::path folder) : folder_(std::move(folder)) {}
  /// Of a tensor and a region that are there.
  virtual void read_region(const TensorRegion& region, std::byte* target) const = 0;
  virtual std::optional<RegionInPlace> region_in_place(const TensorRegion& /*region*/) const {
    return std::nullopt;
  }

  std::filesystem::path folder_;
  std::map<std::string, StoredTensor> tensors_;

 private:
  void check_region(const TensorRegion& region) const;
};

}  // namespace quintet
