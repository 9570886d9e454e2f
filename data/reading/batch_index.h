#pragma once
// Places of a stream of batches, kept in a file, so that a jump to a batch begins near it: one
// position a line, every 256 batches. It fills as batches are made, so a jump passes over any batch
// once only.
//
//   BatchIndex index(model_dir / "data_index.jsonl");
//   const std::string near = index.before(1'000'000, position);     // of the same data and files

#include <cstdint>
#include <filesystem>
#include <string>

namespace quintet::data {

class BatchIndex {
 public:
  static constexpr int64_t kStride = 256;

  /// Of no file: remembers nothing.
  BatchIndex() = default;
  /// Reads the file if there is one; lines that are cut off or damaged are left out.
  explicit BatchIndex(std::filesystem::path file) : file_(std::move(file)) {}

  /// The last position known that is at or before `batch` and of the same data as `like`; empty:
  /// none.
  std::string before(int64_t batch, const std::string& like) const;
  /// Keeps a position (Batches::position) if its batch is due. Failing to write is not an error: a
  /// warning.
  void add(int64_t batch, const std::string& position);
  bool due(int64_t batch) const { return !file_.empty() && batch % kStride == 0; }

 private:
  std::filesystem::path file_;
  int64_t last_ = -1;  // that was added
};

}  // namespace quintet::data
