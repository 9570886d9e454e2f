#pragma once
// Numbers of a checkpoint's tensors, read a block at a time: tensors may be larger than the memory.
//
//   for (const TensorRegion& block : blocks_of(reader, "target/x"))
//     for_values(read_block(reader, block), [&](double value) { ... });

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"

namespace quintet {

/// open_checkpoint(), or a single safetensors file.
std::shared_ptr<const CheckpointReader> open_for_inspection(const std::filesystem::path& path);

/// Row-major parts of a tensor in their order, each of at most 4 M elements; of equal shapes the same.
std::vector<TensorRegion> blocks_of(const CheckpointReader& reader, const std::string& name);
HostArray read_block(const CheckpointReader& reader, const TensorRegion& block);
/// Every element as float64.
void for_values(const HostArray& block, const std::function<void(double)>& take);
struct Statistics {
  double min = std::numeric_limits<double>::infinity(), max = -min, squares = 0;
  int64_t not_finite = 0, count = 0;
  void add(double value);
  /// Root mean square of the finite ones.
  double rms() const;
};
Statistics statistics_of(const CheckpointReader& reader, const std::string& name);
/// Of all tensors: every number is read.
NotFinite count_not_finite(const CheckpointReader& reader);

}  // namespace quintet
