#include "apps/model/quantized_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/input/run_vocabularies.h"
#include "apps/model/checkpoint_parameters.h"
#include "apps/model/weights/stored_parameters.h"
#include "apps/process/progress.h"
#include "checkpoint/checkpoint.h"
#include "models/decoding/network/quantized_parameters.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/formats/json.h"

namespace quintet {

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
                            const std::shared_ptr<const CheckpointReader>& checkpoint,
                            SharedMemoryGroup* ranks) {
  Weights weights = weights_of(requested, checkpoint);
  weights.ranks = ranks;
  if (Device::current().is_cpu() || ranks != nullptr) weights.stored = checkpoint;
  return weights;
}

std::vector<std::string> load_for(const Weights& weights, const CheckpointReader& checkpoint,
                                  BaseModel& model, std::optional<int64_t> fallback_seed) {
  if (!weights.stored) return load_parameters(checkpoint, model.parameters(), fallback_seed);
  if (!weights.quantized) check_parameters(checkpoint, model.parameters());
  return {};
}

HostArrays quantized_arrays(const BaseModel& model, WeightType weights) {
  HostArrays arrays;
  PartsProgress progress;
  const int64_t total = std::ssize(model.parameters().all());
  int64_t done = 0;
  for (const ParamInfo& info : model.parameters().all()) {
    auto q = decoding::quantize_parameter(model.spec(), info.name, info.value.local(), weights);
    arrays[parameter_key(info.name)] = std::move(q.values);
    if (q.scales.elements() > 0)
      arrays[parameter_key(scales_name(info.name))] = std::move(q.scales);
    progress.update("quantize", ++done, total, "parameters");
  }
  progress.finish();
  return arrays;
}

void write_quantized(const TrainedModel& trained, WeightType weights,
                     const std::filesystem::path& folder) {
  QT_CHECK(list_checkpoints(folder).empty(),
           "--output={}: there is a checkpoint already; name another folder", folder.string());
  const HostArrays arrays = quantized_arrays(*trained.model->model, weights);
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
