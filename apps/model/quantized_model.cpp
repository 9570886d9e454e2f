#include "apps/model/quantized_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/input/run_vocabularies.h"
#include "apps/model/checkpoint_parameters.h"
#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/arrays/half.h"
#include "checkpoint/checkpoint.h"
#include "models/decoding/network/quantized_parameters.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

constexpr const char* kScale = "_scale";

/// Whether a parameter is kept as it was trained: an encoder with experts is the model's own.
bool stays(const ModelSpec& spec, const std::string& name) {
  return spec.encoder_has_experts() && !name.starts_with("decoder/");
}

HostArray read_region(const CheckpointReader& checkpoint, const std::string& name,
                      const std::optional<decoding::ParameterPart>& part = {}) {
  const auto found = checkpoint.tensors().find("target/" + name);
  QT_CHECK_AS(ExitCode::kData, found != checkpoint.tensors().end(),
              "{}: has no parameter {}; does config.gin belong to it?",
              checkpoint.folder().string(), name);
  TensorRegion region{found->first, std::vector<int64_t>(found->second.shape.size(), 0),
                      found->second.shape};
  if (part) {
    region.origin.at(static_cast<size_t>(part->axis)) = part->begin;
    region.sizes.at(static_cast<size_t>(part->axis)) = part->count;
  }
  HostArray array(found->second.dtype, region.sizes);
  checkpoint.read(region, array.bytes.data());
  return array;
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
  const auto found = checkpoint.tensors().find("target/" + name);
  int64_t elements = 1;
  if (found != checkpoint.tensors().end())
    for (const int64_t size : found->second.shape) elements *= size;
  if (!checkpoint.reading_verifies() || elements > kMostElements)
    return read_region(checkpoint, name, part);
  if (kept.name != name) {
    kept = {};  // before the next one is there
    kept = {name, read_region(checkpoint, name)};
  }
  std::vector<int64_t> origin(kept.array.shape.size(), 0), sizes = kept.array.shape;
  origin.at(static_cast<size_t>(part.axis)) = part.begin;
  sizes.at(static_cast<size_t>(part.axis)) = part.count;
  HostArray array(kept.array.dtype, sizes);
  FileTensor::dense(kept.array.dtype, kept.array.shape, kept.array.bytes)
      .copy_region(origin, sizes, array.bytes.data());
  return array;
}

HostArray widened(HostArray array, const std::string& name) {
  QT_CHECK_AS(ExitCode::kData, is_floating(array.dtype) && array.dtype != DType::f64,
              "parameter {}: expected float32, bfloat16 or float16, found {}", name,
              name_of(array.dtype));
  return as_float32(std::move(array));
}

}  // namespace

std::optional<WeightType> quantization_of(const CheckpointReader& checkpoint) {
  const Json state = Json::parse(checkpoint.state_json(), checkpoint.folder().string() + ": state");
  if (!state.has("quantized")) return std::nullopt;
  return weight_type_from_name(state["quantized"].as_string());
}

void check_not_quantized(const CheckpointReader& checkpoint) {
  const auto type = quantization_of(checkpoint);
  QT_CHECK_AS(
      ExitCode::kData, !type,
      "{}: holds weights in {}, which generate, infer, eval and serve read; name the run that it "
      "was made from",
      checkpoint.folder().string(), name_of(*type));
}

Weights weights_of(std::optional<WeightType> requested,
                   const std::shared_ptr<const CheckpointReader>& checkpoint) {
  const auto type = quantization_of(*checkpoint);
  if (!type) return {.type = requested.value_or(WeightType::f32)};
  const bool fits = !requested || requested == type ||
                    (type == WeightType::int8 && requested == WeightType::int8_dynamic);
  QT_CHECK(fits, "--quantize={}: {} holds weights in {}; leave the flag out{}", name_of(*requested),
           checkpoint->folder().string(), name_of(*type),
           type == WeightType::int8 ? ", or use int8_dynamic" : "");
  return {.type = requested.value_or(*type), .stored = checkpoint, .quantized = true};
}

Weights weights_to_generate(std::optional<WeightType> requested,
                            const std::shared_ptr<const CheckpointReader>& checkpoint) {
  Weights weights = weights_of(requested, checkpoint);
  if (Device::current().is_cpu()) weights.stored = checkpoint;
  return weights;
}

decoding::ParameterSource source_of(const Weights& weights) {
  struct Buffers {
    HostArray values, scales;
    Kept kept = {};
  };
  const auto buffers = std::make_shared<Buffers>();
  decoding::ParameterSource::Part part;
  // Ours are stored in chunks that parts would read several times.
  if (!weights.quantized && !weights.stored->is_native())
    part = [checkpoint = weights.stored, buffers](
               const std::string& name,
               const decoding::ParameterPart& which) -> decoding::StoredParameter {
      buffers->values = {};  // before the next one is there
      buffers->values = widened(read_part(*checkpoint, name, which, buffers->kept), name);
      return View::of(buffers->values.as<float>().data(), buffers->values.shape);
    };
  const auto whole = [checkpoint = weights.stored, quantized = weights.quantized,
                      buffers](const std::string& name) -> decoding::StoredParameter {
    buffers->values = {};  // before the next one is there
    buffers->kept = {};
    buffers->values = read_region(*checkpoint, name);
    if (!quantized) buffers->values = widened(std::move(buffers->values), name);
    View view = View::of(reinterpret_cast<const uint8_t*>(buffers->values.bytes.data()),
                         buffers->values.shape);
    view.dtype = buffers->values.dtype;
    if (size_of(view.dtype) > 1) return view;
    buffers->scales = read_region(*checkpoint, name + kScale);
    QT_CHECK_AS(ExitCode::kData,
                buffers->scales.dtype == DType::f32 &&
                    buffers->scales.elements() * view.size(name.ends_with("embedding") ? -1 : -2) ==
                        view.elements(),
                "{}: parameter {}{}: {} values of {} do not fit the {} of {}",
                checkpoint->folder().string(), name, kScale, buffers->scales.elements(),
                name_of(buffers->scales.dtype), view.elements(), name);
    return {view, buffers->scales.as<float>().data()};
  };
  return {whole, std::move(part)};
}

std::vector<std::string> load_for(const Weights& weights, const CheckpointReader& checkpoint,
                                  BaseModel& model, std::optional<int64_t> fallback_seed) {
  if (!weights.stored) return load_parameters(checkpoint, model.parameters(), fallback_seed);
  if (!weights.quantized) check_parameters(checkpoint, model.parameters());
  for (ParamInfo& info : model.parameters().all()) {
    if (!stays(model.spec(), info.name)) continue;
    const HostArray array = widened(read_region(checkpoint, info.name), info.name);
    info.value = Tensor(info.spec);
    QT_CHECK_AS(
        ExitCode::kData, array.dtype == DType::f32 && std::ssize(array.bytes) == info.value.bytes(),
        "{}: parameter {}: expected {}, found {} values of {}", checkpoint.folder().string(),
        info.name, to_string(info.spec), array.elements(), name_of(array.dtype));
    info.value.set(array);
  }
  model.parameters().refresh();
  return {};
}

void write_quantized(const TrainedModel& trained, WeightType weights,
                     const std::filesystem::path& folder) {
  const BaseModel& model = *trained.model->model;
  QT_CHECK(list_checkpoints(folder).empty(),
           "--output={}: there is a checkpoint already; name another folder", folder.string());
  HostArrays arrays;
  for (const ParamInfo& info : model.parameters().all()) {
    if (stays(model.spec(), info.name)) {
      arrays["target/" + info.name] = info.value.to_host();
      continue;
    }
    auto q = decoding::quantize_parameter(model.spec(), info.name, info.value.local(), weights);
    arrays["target/" + info.name] = std::move(q.values);
    if (q.scales.elements() > 0) arrays["target/" + info.name + kScale] = std::move(q.scales);
  }
  std::vector<TensorSlice> slices;
  for (const auto& [name, array] : arrays) slices.push_back(whole_slice(name, array));
  const data::VocabularyRecords vocabularies = vocabularies_of(*trained.model);
  const nlohmann::ordered_json state = {{"quantized", name_of(weights)},
                                        {"vocabularies", to_json(vocabularies)}};
  const FolderLock lock(folder);
  atomic_write_file(folder / "config.gin", trained.session->config().config_str());
  copy_vocabularies(folder, vocabularies);
  CheckpointManager(lock).save(trained.step, slices, state.dump());
}

}  // namespace quintet
