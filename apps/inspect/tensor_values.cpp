#include "apps/inspect/tensor_values.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/arrays/half.h"
#include "checkpoint/open/open_checkpoint.h"
#include "checkpoint/open/recognize.h"
#include "checkpoint/safetensors.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

/// A single file, whole in memory.
class SafetensorsReader final : public CheckpointReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& file) : CheckpointReader(file) {
    SafetensorsFile whole = read_safetensors_file(file);
    arrays_ = std::move(whole.arrays);
    if (!whole.metadata.empty()) metadata_ = nlohmann::json(whole.metadata).dump();
    for (const auto& [name, array] : arrays_) tensors_[name] = {array.dtype, array.shape};
  }
  const std::string& state_json() const override { return metadata_; }
  int64_t file_bytes() const override {
    return static_cast<int64_t>(std::filesystem::file_size(folder_));
  }
  using CheckpointReader::verify;
  NotFinite verify(int /*part*/, int /*parts*/) const override {
    std::vector<TensorSlice> slices;
    for (const auto& [name, array] : arrays_) slices.push_back(whole_slice(name, array));
    return count_not_finite(slices);
  }

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override {
    const HostArray& array = arrays_.at(region.name);
    FileTensor::dense(array.dtype, array.shape, array.bytes)
        .copy_region(region.origin, region.sizes, target);
  }

 private:
  HostArrays arrays_;
  std::string metadata_;
};

constexpr int64_t kBlock = int64_t{4} << 20;

/// Cuts `region` along `axis` and those behind it.
void cut(const TensorRegion& region, size_t axis, std::vector<TensorRegion>& blocks) {
  int64_t elements = 1;
  for (const int64_t size : region.sizes) elements *= size;
  if (elements == 0) return;
  if (elements <= kBlock || axis == region.sizes.size()) return blocks.push_back(region);
  const int64_t size = region.sizes[axis];
  const int64_t step = std::max<int64_t>(1, kBlock / (elements / size));
  for (int64_t begin = 0; begin < size; begin += step) {
    TensorRegion part = region;
    part.origin[axis] += begin;
    part.sizes[axis] = std::min(step, size - begin);
    cut(part, axis + 1, blocks);
  }
}

template <typename T>
void for_values_of(const HostArray& block, const std::function<void(double)>& take) {
  for (const T& value : block.as<T>()) {
    if constexpr (std::is_same_v<T, bfloat16>)
      take(static_cast<float>(value));
    else
      take(static_cast<double>(value));
  }
}

}  // namespace

std::shared_ptr<const CheckpointReader> open_for_inspection(const std::filesystem::path& path) {
  if (is_safetensors(path)) return std::make_shared<const SafetensorsReader>(path);
  return open_checkpoint(path);
}

std::vector<TensorRegion> blocks_of(const CheckpointReader& reader, const std::string& name) {
  const std::vector<int64_t>& shape = reader.tensors().at(name).shape;
  std::vector<TensorRegion> blocks;
  cut({name, std::vector<int64_t>(shape.size(), 0), shape}, 0, blocks);
  return blocks;
}

HostArray read_block(const CheckpointReader& reader, const TensorRegion& block) {
  HostArray array(reader.tensors().at(block.name).dtype, block.sizes);
  reader.read(block, array.bytes.data());
  return array;
}

void for_values(const HostArray& block, const std::function<void(double)>& take) {
  switch (block.dtype) {
    case DType::f32:
      return for_values_of<float>(block, take);
    case DType::f64:
      return for_values_of<double>(block, take);
    case DType::bf16:
      return for_values_of<bfloat16>(block, take);
    case DType::f16:
      return for_values_of<float>(as_float32(block), take);
    case DType::i32:
      return for_values_of<int32_t>(block, take);
    case DType::i64:
      return for_values_of<int64_t>(block, take);
    case DType::u8:
      return for_values_of<uint8_t>(block, take);
    case DType::i8:
      return for_values_of<int8_t>(block, take);
    case DType::u32:
      return for_values_of<uint32_t>(block, take);
    case DType::boolean:
      for (const std::byte value : block.bytes) take(std::to_integer<int>(value));
      return;
  }
}

void Statistics::add(double value) {
  ++count;
  if (!std::isfinite(value)) {
    ++not_finite;
    return;
  }
  min = std::min(min, value);
  max = std::max(max, value);
  squares += value * value;
}

double Statistics::rms() const {
  return std::sqrt(squares / static_cast<double>(std::max(count - not_finite, int64_t{1})));
}

Statistics statistics_of(const CheckpointReader& reader, const std::string& name) {
  Statistics statistics;
  for (const TensorRegion& block : blocks_of(reader, name))
    for_values(read_block(reader, block), [&](double value) { statistics.add(value); });
  return statistics;
}

NotFinite count_not_finite(const CheckpointReader& reader) {
  NotFinite not_finite;
  for (const auto& [name, tensor] : reader.tensors()) {
    int64_t count = 0;
    for (const TensorRegion& block : blocks_of(reader, name))
      count += count_not_finite(tensor.dtype, read_block(reader, block).bytes);
    if (count > 0) not_finite[name] = count;
  }
  return not_finite;
}

}  // namespace quintet
