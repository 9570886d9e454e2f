#pragma once
// What a run that stops on non-finite values leaves behind: the batches of the steps whose gradients were not
// finite, so that the data can be looked at and the steps run again.
//
//   report.add({.step = 12, .tensor = "decoder/logits_dense/kernel", ...}, batch.features);
//   const auto file = report.write(model_dir);   // model_dir/not_finite_12.json
//
// On a mesh every rank knows its own rows; texts of the others join them in one file.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/host_array.h"

namespace quintet {

/// A step whose gradient or metric was not finite.
struct BadStep {
  int64_t step = 0;         // the batch's number
  std::string tensor = {};  // the first parameter whose gradient was not finite, or a metric
  double loss = 0;
  std::string data_position =
      {};  // data::Batches::position before it: restoring that gives it again
};

/// The newest ten bad steps of this process.
class NonFiniteReport {
 public:
  /// Of each feature: shape, CRC-32C of its values and the first eight rows.
  void add(const BadStep& bad, const HostArrays& batch);
  /// For another rank's write().
  std::string text() const;
  /// Writes model_dir/not_finite_<newest step>.json and gives its path. `shards`: the texts of all ranks
  /// that had rows of the same batches, this one first; of several, "features" is a list. Throws kDisk.
  std::filesystem::path write(const std::filesystem::path& model_dir,
                              const std::vector<std::string>& shards = {}) const;

 private:
  std::deque<std::pair<int64_t, std::string>> steps_;  // their numbers, and as JSON
};

}  // namespace quintet
