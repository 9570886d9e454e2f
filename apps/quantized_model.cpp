#include "apps/quantized_model.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "checkpoint/checkpoint.h"
#include "models/decoding/quantized_parameters.h"
#include "runtime/base/atomic_file.h"
#include "runtime/base/json.h"

namespace quintet {
namespace {

constexpr const char* kScale = "_scale";

decoding::NetworkShape shape_of(const BaseModel& model) {
  if (const auto* network = dynamic_cast<const EncoderDecoderModel*>(&model))
    return decoding::shape_of(network->network().config());
  return decoding::shape_of(dynamic_cast<const DecoderOnlyModel&>(model).network().config());
}

}  // namespace

std::optional<WeightType> quantization_of(const CheckpointReader& checkpoint) {
  const Json state = Json::parse(checkpoint.state_json(), checkpoint.folder().string() + ": state");
  if (!state.has("quantized")) return std::nullopt;
  return weight_type_from_name(state["quantized"].as_string());
}

void check_not_quantized(const CheckpointReader& checkpoint) {
  const auto type = quantization_of(checkpoint);
  QT_CHECK_AS(ExitCode::kData, !type,
              "{}: holds weights in {}, which generate, infer and serve read; name the run that it "
              "was made from",
              checkpoint.folder().string(), name_of(*type));
}

Weights weights_of(std::optional<WeightType> asked,
                   const std::shared_ptr<const CheckpointReader>& checkpoint) {
  const auto type = quantization_of(*checkpoint);
  if (!type) return {.type = asked.value_or(WeightType::f32)};
  QT_CHECK(Device::current().is_cpu(), "{}: weights in {} are for the CPU; use --device=cpu",
           checkpoint->folder().string(), name_of(*type));
  const bool fits = !asked || asked == type ||
                    (type == WeightType::int8 && asked == WeightType::int8_dynamic);
  QT_CHECK(fits, "--quantize={}: {} holds weights in {}; leave the flag out{}", name_of(*asked),
           checkpoint->folder().string(), name_of(*type),
           type == WeightType::int8 ? ", or use int8_dynamic" : "");
  return {.type = asked.value_or(*type), .quantized = checkpoint};
}

decoding::ParameterSource source_of(std::shared_ptr<const CheckpointReader> checkpoint) {
  struct Buffers {
    HostArray values, scales;
  };
  return [checkpoint, buffers = std::make_shared<Buffers>()](
             const std::string& name) -> decoding::StoredParameter {
    const auto read = [&](const std::string& tensor, HostArray& to) {
      const auto found = checkpoint->tensors().find("target/" + tensor);
      QT_CHECK_AS(ExitCode::kData, found != checkpoint->tensors().end(),
                  "{}: has no parameter {}; does config.gin belong to it?",
                  checkpoint->folder().string(), tensor);
      to = HostArray(found->second.dtype, found->second.shape);
      checkpoint->read({found->first, std::vector<int64_t>(to.shape.size(), 0), to.shape},
                       to.bytes.data());
    };
    read(name, buffers->values);
    View view = View::of(reinterpret_cast<const uint8_t*>(buffers->values.bytes.data()),
                         buffers->values.shape);
    view.dtype = buffers->values.dtype;
    if (view.dtype != DType::i8) return view;
    read(name + kScale, buffers->scales);
    QT_CHECK_AS(ExitCode::kData,
                buffers->scales.dtype == DType::f32 &&
                    buffers->scales.elements() * view.size(name.ends_with("embedding") ? -1 : -2) ==
                        view.elements(),
                "{}: parameter {}{}: {} values of {} do not fit the {} of {}",
                checkpoint->folder().string(), name, kScale, buffers->scales.elements(),
                name_of(buffers->scales.dtype), view.elements(), name);
    return {view, buffers->scales.as<float>().data()};
  };
}

void write_quantized(const TrainedModel& trained, WeightType weights,
                     const std::filesystem::path& folder) {
  const decoding::NetworkShape shape = shape_of(*trained.model->model);
  QT_CHECK(shape.sparse_encoder.num_sparse_layers == 0,
           "quintet convert: an encoder with experts routes whole batches in float32, so it is not "
           "quantized; use --quantize with generate, infer or serve for its decoder");
  QT_CHECK(list_checkpoints(folder).empty(),
           "--output={}: there is a checkpoint already; name another folder", folder.string());
  HostArrays arrays;
  for (const ParamInfo& info : trained.model->model->parameters().all()) {
    auto q = decoding::quantize_parameter(shape, info.name, info.value.local(), weights);
    arrays["target/" + info.name] = std::move(q.values);
    if (q.scales.elements() > 0) arrays["target/" + info.name + kScale] = std::move(q.scales);
  }
  std::vector<TensorSlice> slices;
  for (const auto& [name, array] : arrays) slices.push_back(whole_slice(name, array));
  const FolderLock lock(folder);
  atomic_write_file(folder / "config.gin", trained.session->config().config_str());
  CheckpointManager(lock).save(trained.step, slices,
                               nlohmann::ordered_json{{"quantized", name_of(weights)}}.dump());
}

}  // namespace quintet
