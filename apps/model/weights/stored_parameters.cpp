#include "apps/model/weights/stored_parameters.h"

#include "checkpoint/arrays/copy_block.h"
#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/arrays/half.h"
#include "models/decoding/network/quantized_parameters.h"

namespace quintet {
namespace {

TensorRegion region_of(const CheckpointReader& checkpoint, const std::string& name,
                       const std::optional<decoding::ParameterPart>& part) {
  const auto found = checkpoint.tensors().find(parameter_key(name));
  QT_CHECK_AS(ExitCode::kData, found != checkpoint.tensors().end(),
              "{}: has no parameter {}; does config.gin belong to it?",
              checkpoint.folder().string(), name);
  TensorRegion region{found->first, std::vector<int64_t>(found->second.shape.size(), 0),
                      found->second.shape};
  if (part) {
    region.origin.at(static_cast<size_t>(part->axis)) = part->begin;
    region.sizes.at(static_cast<size_t>(part->axis)) = part->count;
  }
  return region;
}

/// An array that is in memory for its parts.
struct Kept {
  std::string name;
  HostArray array;
};

/// Chunks that are compressed would be so often decompressed as they have parts: an array of ordinary size is
/// read once.
HostArray read_part(const CheckpointReader& checkpoint, const std::string& name,
                    const decoding::ParameterPart& part, Kept& kept) {
  constexpr int64_t kMostElements = 64 << 20;
  const auto found = checkpoint.tensors().find(parameter_key(name));
  int64_t elements = 1;
  if (found != checkpoint.tensors().end())
    for (const int64_t size : found->second.shape) elements *= size;
  if (!checkpoint.reading_verifies() || elements > kMostElements)
    return read_stored(checkpoint, name, part);
  if (kept.name != name) {
    kept = {};  // before the next one is there
    kept = {name, read_stored(checkpoint, name)};
  }
  std::vector<int64_t> origin(kept.array.shape.size(), 0), sizes = kept.array.shape;
  origin.at(static_cast<size_t>(part.axis)) = part.begin;
  sizes.at(static_cast<size_t>(part.axis)) = part.count;
  HostArray array(kept.array.dtype, sizes);
  FileTensor::dense(kept.array.dtype, kept.array.shape, kept.array.bytes)
      .copy_region(origin, sizes, array.bytes.data());
  return array;
}

/// What a call has given until the next one: where it lies in a mapped file, else a copy.
struct Held {
  RegionInPlace in_place;
  HostArray copy;
};

View view_of(const std::byte* values, DType dtype, const std::vector<int64_t>& sizes) {
  View view = View::of(reinterpret_cast<const uint8_t*>(values), sizes);
  view.dtype = dtype;
  return view;
}

class Source {
 public:
  explicit Source(const Weights& weights)
      : checkpoint_(weights.stored), is_quantized_(weights.quantized) {}

  decoding::StoredParameter whole(const std::string& name) {
    forget();
    kept_ = {};
    decoding::StoredParameter parameter(dense(name, values_));
    if (size_of(parameter.values.dtype) == 1) parameter.scales = scales_of(name, {});
    return parameter;
  }

  decoding::StoredParameter part(const std::string& name, const decoding::ParameterPart& which) {
    forget();
    const TensorRegion region = region_of(*checkpoint_, name, which);
    const bool is_matrix =
        region.sizes.size() == 2 || (region.sizes.size() == 3 && region.sizes[0] == 1);
    decoding::StoredParameter part(View::none());
    if (is_matrix && is_in_place(region, values_)) {
      part.values = view_of(values_.in_place.values, dtype_of(region), region.sizes);
      part.strides = {values_.in_place.strides.end()[-2], values_.in_place.strides.end()[-1]};
    } else {
      part.values = copied(read_part(*checkpoint_, name, which, kept_), name, values_);
    }
    if (size_of(part.values.dtype) == 1) part.scales = scales_of(name, which);
    return part;
  }

 private:
  /// Before the next one is there.
  void forget() { values_ = scales_ = {}; }
  DType dtype_of(const TensorRegion& region) const {
    return checkpoint_->tensors().at(region.name).dtype;
  }
  /// Of what is computed with as it is stored: whoever takes float32 divides some by a factor first.
  bool is_in_place(const TensorRegion& region, Held& held) const {
    if (!is_quantized_ && dtype_of(region) != DType::f32) return false;
    auto found = checkpoint_->in_place(region);
    if (!found) return false;
    held.in_place = std::move(*found);
    return true;
  }
  View copied(HostArray array, const std::string& name, Held& held) const {
    held.copy = is_quantized_ ? std::move(array) : widened(std::move(array), name);
    return view_of(held.copy.bytes.data(), held.copy.dtype, held.copy.shape);
  }
  View dense(const std::string& name, Held& held) const {
    const TensorRegion region = region_of(*checkpoint_, name, {});
    if (is_in_place(region, held) && held.in_place.strides == dense_strides(region.sizes))
      return view_of(held.in_place.values, dtype_of(region), region.sizes);
    held.in_place = {};
    return copied(read_stored(*checkpoint_, name), name, held);
  }
  /// Of a parameter in a byte, or of a part along an axis that scales have, too.
  const float* scales_of(const std::string& name,
                         const std::optional<decoding::ParameterPart>& part) {
    const std::vector<int64_t>& shape = checkpoint_->tensors().at(parameter_key(name)).shape;
    const View scales = dense(scales_name(name), scales_);
    const bool by_row = decoding::is_token_table(name);
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    QT_CHECK_AS(
        ExitCode::kData,
        scales.dtype == DType::f32 && scales.elements() * shape.end()[by_row ? -1 : -2] == elements,
        "{}: parameter {}: {} values of {} do not fit the {} of {}", checkpoint_->folder().string(),
        scales_name(name), scales.elements(), name_of(scales.dtype), elements, name);
    if (!part) return scales.data<float>();
    QT_ASSERT(shape.size() == 3 || (part->axis == 0) == by_row);
    return scales.data<float>() +
           part->begin * (scales.elements() / shape.at(static_cast<size_t>(part->axis)));
  }

  const std::shared_ptr<const CheckpointReader> checkpoint_;
  const bool is_quantized_;
  Held values_, scales_;
  Kept kept_;
};

}  // namespace

std::string scales_name(const std::string& name) { return name + "_scale"; }

HostArray read_stored(const CheckpointReader& checkpoint, const std::string& name,
                      const std::optional<decoding::ParameterPart>& part) {
  const TensorRegion region = region_of(checkpoint, name, part);
  HostArray array(checkpoint.tensors().at(region.name).dtype, region.sizes);
  checkpoint.read(region, array.bytes.data());
  return array;
}

HostArray widened(HostArray array, const std::string& name) {
  QT_CHECK_AS(ExitCode::kData, is_floating(array.dtype) && array.dtype != DType::f64,
              "parameter {}: expected float32, bfloat16 or float16, found {}", name,
              name_of(array.dtype));
  return as_float32(std::move(array));
}

decoding::ParameterSource source_of(const Weights& weights) {
  using decoding::ParameterPart, decoding::ParameterSource;
  const auto source = std::make_shared<Source>(weights);
  ParameterSource::Part part;
  // Chunks of checkpoints of ours would be read several times by parts.
  if (!weights.stored->is_native() || weights.stored->is_mapped())
    part = [source](const std::string& name, const ParameterPart& which) {
      return source->part(name, which);
    };
  return {[source](const std::string& name) { return source->whole(name); }, std::move(part)};
}

}  // namespace quintet
