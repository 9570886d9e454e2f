#include "apps/model/weights/stored_parameters.h"

#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/arrays/half.h"

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

class Source {
 public:
  explicit Source(const Weights& weights)
      : checkpoint_(weights.stored), is_quantized_(weights.quantized) {}

  decoding::StoredParameter whole(const std::string& name) {
    forget();
    kept_ = {};
    values_ = read_stored(*checkpoint_, name);
    if (!is_quantized_) values_ = widened(std::move(values_), name);
    View view = View::of(reinterpret_cast<const uint8_t*>(values_.bytes.data()), values_.shape);
    view.dtype = values_.dtype;
    if (size_of(view.dtype) > 1) return view;
    scales_ = read_stored(*checkpoint_, scales_name(name));
    QT_CHECK_AS(ExitCode::kData,
                scales_.dtype == DType::f32 &&
                    scales_.elements() * view.size(name.ends_with("embedding") ? -1 : -2) ==
                        view.elements(),
                "{}: parameter {}: {} values of {} do not fit the {} of {}",
                checkpoint_->folder().string(), scales_name(name), scales_.elements(),
                name_of(scales_.dtype), view.elements(), name);
    return {view, scales_.as<float>().data()};
  }

  decoding::StoredParameter part(const std::string& name, const decoding::ParameterPart& which) {
    forget();
    if (auto found = part_in_place(name, which)) return *found;
    values_ = widened(read_part(*checkpoint_, name, which, kept_), name);
    return View::of(values_.as<float>().data(), values_.shape);
  }

 private:
  /// Before the next one is there.
  void forget() {
    values_ = {};
    in_place_ = {};
  }
  /// Of float32 alone: whoever takes a part divides some by a factor first.
  std::optional<decoding::StoredParameter> part_in_place(const std::string& name,
                                                         const decoding::ParameterPart& which) {
    const TensorRegion region = region_of(*checkpoint_, name, which);
    const bool is_matrix =
        region.sizes.size() == 2 || (region.sizes.size() == 3 && region.sizes[0] == 1);
    if (!is_matrix || checkpoint_->tensors().at(region.name).dtype != DType::f32)
      return std::nullopt;
    const auto found = checkpoint_->in_place(region);
    if (!found) return std::nullopt;
    in_place_ = *found;
    decoding::StoredParameter part(
        View::of(reinterpret_cast<const float*>(found->values), region.sizes));
    part.strides = {found->strides.end()[-2], found->strides.end()[-1]};
    return part;
  }

  const std::shared_ptr<const CheckpointReader> checkpoint_;
  const bool is_quantized_;
  HostArray values_, scales_;
  RegionInPlace in_place_;
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
  // Chunks of a run's checkpoints would be read several times by parts.
  if (!weights.quantized && (!weights.stored->is_native() || weights.stored->is_mapped()))
    part = [source](const std::string& name, const ParameterPart& which) {
      return source->part(name, which);
    };
  return {[source](const std::string& name) { return source->whole(name); }, std::move(part)};
}

}  // namespace quintet
