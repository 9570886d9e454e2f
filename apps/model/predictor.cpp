#include "apps/model/predictor.h"

#include <algorithm>

#include "apps/config/decoding_config.h"
#include "apps/model/replicated_parameters.h"
#include "apps/model/weights/stored_parameters.h"
#include "data/vocabularies/vocabulary.h"
#include "kernels/dequantize/dequantize.h"
#include "models/decoding/teacher_forced.h"
#include "runtime/base/memory/memory.h"
#include "runtime/tensor/low_rank.h"

namespace quintet {
namespace {

using decoding::BeamOptions;
using decoding::SampleOptions;

int32_t eos_of(const ConfiguredModel& model) {
  const auto vocabulary = model.output_vocabulary.object_as<const data::Vocabulary>();
  return vocabulary == nullptr ? 1 : vocabulary->eos_id().value_or(1);
}

}  // namespace

namespace {

/// A parameter that is whole while the next one is not asked for.
struct WholeParameter {
  Tensor gathered;
  HostArray copy;

  /// In ordinary memory.
  View view() {
    View all = gathered.local();
    if (!gathered.device().is_cpu()) {
      copy = gathered.to_host();
      all.pointer = copy.bytes.data();
    }
    return all;
  }
};

/// The experts of a stack that lies on a mesh, gathered a few at a time: of every part of the stack as many.
void each_expert(const Tensor& stack, const decoding::ParameterSource::UseOne& use) {
  constexpr int64_t kElements = 1 << 20;  // at a time, about
  const int64_t own = stack.block().sizes[0], parts = stack.size(0) / own;
  const int64_t elements = stack.spec().elements() / stack.size(0);
  const int64_t most = std::clamp<int64_t>(kElements / (parts * elements), 1, own);
  for (int64_t first = 0; first < own; first += most) {
    const int64_t count = std::min(most, own - first);
    Spec some = stack.spec();
    some.axes[0].size = parts * count;
    Tensor mine(some, stack.layout(), full_slice(some));
    stack.device().copy(mine.raw(), stack.raw() + stack.bytes() / own * first, mine.bytes());
    WholeParameter whole{replicated(mine), {}};
    mine = Tensor();
    const float* const values = whole.view().data<float>();
    for (int64_t i = 0; i < parts * count; ++i)
      use(i / count * own + first + i % count,
          View::of(values + i * elements, std::vector{elements}));
  }
}

/// A frozen kernel in float32 with what its adapter adds.
HostArray merged(const ParamInfo& info, const std::function<HostArray(const Tensor&)>& all) {
  const HostArray values = all(info.value);
  const std::vector<int64_t>& shape = values.shape;
  const HostArray scales = info.scales ? all(info.scales) : HostArray(DType::f32, {0});
  HostArray w(DType::f32, shape);
  dequantize_rows_cpu({.dtype = values.dtype,
                       .values = values.bytes.data(),
                       .scales = info.scales ? scales.as<float>().data() : nullptr,
                       .rows_together = shape[0],
                       .table_rows = shape[0],
                       .rows = shape[0],
                       .columns = shape[1],
                       .out = w.bytes.data()});
  if (!info.low_rank) return w;
  const HostArray a = all(info.low_rank->a->value), b = all(info.low_rank->b->value);
  add_low_rank(a.as<float>().data(), b.as<float>().data(), static_cast<float>(info.low_rank->scale),
               shape[0], a.shape[1], shape[1], shape[1], w.as<float>().data());
  return w;
}

bool is_narrow(const ParamInfo& info) { return info.spec.dtype != DType::f32; }

/// Float32 parameters, or a quantized checkpoint's. On a mesh each, and of experts a few, are gathered when they are
/// asked for, by all ranks together, and gone when the next are.
decoding::ParameterSource parameters_of(const BaseModel& model, const Weights& weights) {
  if (weights.stored) return source_of(weights);
  const bool on_mesh = ExecutionContext::current().sharding != nullptr;
  const auto whole_one = [&model, on_mesh,
                          whole = std::make_shared<WholeParameter>()](const std::string& name) {
    const ParamInfo& info = model.parameters().at(name);
    const auto all = [on_mesh](const Tensor& value) { return on_mesh ? replicated(value) : value; };
    whole->gathered = Tensor();
    if (info.low_rank || is_narrow(info)) {
      whole->copy = merged(info, [&](const Tensor& value) { return all(value).to_host(); });
      return View::of(std::as_const(whole->copy).as<float>().data(), whole->copy.shape);
    }
    whole->gathered = all(info.value);
    return whole->view();
  };
  if (!on_mesh) return whole_one;
  return {whole_one, {}, [&model](const std::string& name, const auto& use) {
            each_expert(model.parameters().at(name).value, use);
          }};
}

}  // namespace

std::unique_ptr<decoding::PackedNetwork> pack(const BaseModel& model, const Weights& weights) {
  return std::make_unique<decoding::PackedNetwork>(model.spec(), parameters_of(model, weights),
                                                   weights.type, weights.ranks);
}

std::unique_ptr<decoding::PackedNetwork> pack_encoder(const BaseModel& model,
                                                      const Weights& weights) {
  return std::make_unique<decoding::PackedNetwork>(
      model.spec().encoder_alone(), parameters_of(model, weights), weights.type, weights.ranks);
}

decoding::InferenceWeights inference_weights(const BaseModel& model, const Weights& weights) {
  const bool adapted = std::ranges::any_of(
      model.parameters().all(), [](const ParamInfo& info) { return info.low_rank.has_value(); });
  if (weights.type == WeightType::f32 && weights.ranks == nullptr && !adapted) return {};
  return {weights.type, parameters_of(model, weights),
          weights.ranks == nullptr ? Group() : weights.ranks->devices()};
}

void drop_packed(BaseModel& model, const Weights& weights) {
  if (!Device::current().is_cpu() && weights.type == WeightType::f32 && weights.ranks == nullptr)
    return;
  for (ParamInfo& info : model.parameters().all()) info.value = info.compute = Tensor();
  Device::current().memory().release_cached();
}

namespace {

/// While adapters of a base in fewer bits are trained, answers come from bfloat16: float32 would need the memory
/// that these bits save.
Weights as_base(const BaseModel& model, Weights weights) {
  if (weights.type == WeightType::f32 && !weights.stored &&
      std::ranges::any_of(model.parameters().all(), is_narrow))
    weights.type = WeightType::bf16;
  return weights;
}

using decoding::DecodeFn;

/// What flags ask for in place of what gin files bind.
DecodeFn decode_fn_of(const DecodeFlags& flags, const DecodeFn& bound) {
  if (flags.beams) {
    BeamOptions beam;
    beam.num_decodes = *flags.beams;
    if (const auto* other = std::get_if<BeamOptions>(&bound)) beam.alpha = other->alpha;
    return beam;
  }
  if (!flags.samples()) return bound;
  SampleOptions sample;
  if (const auto* other = std::get_if<SampleOptions>(&bound))
    sample.num_decodes = other->num_decodes;
  sample.temperature = {static_cast<float>(flags.temperature.value_or(1.0))};
  sample.topk = flags.top_k.value_or(0);
  sample.topp = static_cast<float>(flags.top_p.value_or(0.0));
  return sample;
}

}  // namespace

void check_answers(const BaseModel& model) {
  QT_CHECK(!model.spec().encoder_only(),
           "this model is an encoder alone and gives no answers; quintet generate --embed=mean and "
           "/v1/embeddings of quintet serve give its embeddings");
}

Predictor::Predictor(const ConfiguredModel& model, const DecodeFlags& decode,
                     const Weights& requested, CacheType cache_type) {
  const Weights weights = as_base(*model.model, requested);
  check_answers(*model.model);
  if (!Device::current().is_cpu())
    device_ = std::make_unique<decoding::GpuDecoder>(*model.model,
                                                     inference_weights(*model.model, weights));
  else
    network_ = pack(*model.model, weights);
  const ModelSpec& spec = model.model->spec();
  decoder_only_ = spec.decoder_only();
  options_.inputs_bidirectional_attention = spec.inputs_bidirectional_attention;
  options_.eos_id = eos_of(model);
  options_.cache_type = cache_type;
  options_.decode_fn = configured_decode_fn(model, decoder_only_);
  if (model.config != nullptr) {
    const gin::Arguments method = model.config->arguments(model.name + ".predict_batch_with_aux");
    if (!decoder_only_) options_.prompt_with_targets = method.get<bool>("prompt_with_targets");
    returns_all_decodes_ = method.get<std::optional<bool>>("return_all_decodes")
                               .value_or(model.default_decoder_params.return_all_decodes);
  }
  options_.decode_fn = decode_fn_of(decode, options_.decode_fn);
}

decoding::Decodes Predictor::predict(const HostArrays& batch, Key key) const {
  decoding::PredictOptions options = options_;
  if (auto* sample = std::get_if<SampleOptions>(&options.decode_fn)) sample->decode_rng = key;
  if (auto* own = std::get_if<decoding::OwnDecodeFn>(&options.decode_fn)) own->decode_rng = key;
  const auto run = [&](auto& on) {
    return decoder_only_ ? decoding::predict_decoder_only(on, batch, options)
                         : decoding::predict_encoder_decoder(on, batch, options);
  };
  return device_ != nullptr ? run(*device_) : run(*network_);
}

BaseModel::TokenScores Predictor::score(const HostArrays& batch) const {
  return device_ != nullptr ? decoding::score_tokens(device_->weights(), batch)
                            : decoding::score_tokens(*network_, batch);
}

Metrics Predictor::losses(const BaseModel& model, const HostArrays& batch) const {
  return device_ != nullptr ? decoding::eval_metrics(model, device_->weights(), batch)
                            : decoding::eval_metrics(model, *network_, batch);
}

decoding::Answers Predictor::answer(const HostArrays& batch,
                                    std::vector<decoding::DecodingRequest> requests) const {
  using namespace decoding;
  const auto run = [&](auto& on) {
    return decoder_only_ ? answer_decoder_only(on, batch, options_, std::move(requests))
                         : answer_encoder_decoder(on, batch, options_, std::move(requests));
  };
  return device_ != nullptr ? run(*device_) : run(*network_);
}

}  // namespace quintet
