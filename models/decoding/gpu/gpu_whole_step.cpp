#include "models/decoding/gpu/gpu_whole_step.h"

#include <cstdlib>
#include <string_view>

#include "kernels/gpu/gpu_kernels.h"
#include "models/decoding/gpu/device_arrays.h"

namespace quintet::decoding {
namespace {

const void* pointer(const GpuMatrix& matrix) {
  return matrix.absent() ? nullptr : matrix.values.local().pointer;
}

/// While it is slower than separate kernels on an H200: only for measurements.
bool is_asked_for() {
  const char* const value = std::getenv("QUINTET_WHOLE_STEP");
  return value != nullptr && std::string_view(value) == "1";
}

bool is_plain(const GpuMatrix& matrix) { return matrix.absent() || matrix.is_dequantized(); }

/// Whether the kernel can have the layer's weights; to `to` then.
bool put_layer(const LayerWeights<GpuForm>& layer, DecodeStepLayer& to, DecodeStep& step) {
  if (layer.feed_forward.size() != 1) return false;
  const auto* const mlp = std::get_if<GpuForm::Mlp>(&layer.feed_forward[0].mlp);
  if (mlp == nullptr) return false;
  const GpuMatrix none;
  const GpuMatrix& query = layer.cross ? layer.cross->in.joined : none;
  const GpuMatrix& cross_out = layer.cross ? layer.cross->out : none;
  for (const GpuMatrix* matrix : {&layer.self.in.joined, &layer.self.out, &query, &cross_out,
                                  &mlp->wi_0, &mlp->wi_1, &mlp->wo})
    if (!is_plain(*matrix)) return false;
  const Gate gate = Gate::of("mlp_in", mlp->activations, !mlp->wi_1.absent());
  step.act0 = gate.act0;
  step.act1 = gate.act1;
  to.self_norm = floats(layer.self.norm);
  to.cross_norm = layer.cross ? floats(layer.cross->norm) : nullptr;
  to.mlp_norm = floats(layer.feed_forward[0].norm);
  to.qkv = pointer(layer.self.in.joined);
  to.out = pointer(layer.self.out);
  to.query = pointer(query);
  to.cross_out = pointer(cross_out);
  to.wi_0 = pointer(mlp->wi_0);
  to.wi_1 = pointer(mlp->wi_1);
  to.wo = pointer(mlp->wo);
  to.bias = floats(layer.self.relative_bias.by_distance);
  step.biases = static_cast<int32_t>(layer.self.relative_bias.by_distance.size(1));
  return true;
}

}  // namespace

WholeStep::WholeStep(const GpuWeights& weights, DecodeStep step) : step_(step) {
  if (!is_asked_for()) return;
  const LayerConfig& c = weights.layer();
  const size_t layers = weights.decoder.layers.size();
  if (weights.ranks.size() > 1 || layers > kMostStepLayers) return;
  step_.dtype = weights.dtype();
  step_.layers = static_cast<int32_t>(layers);
  step_.embed = static_cast<int32_t>(weights.spec.emb_dim());
  step_.heads = static_cast<int32_t>(c.num_heads);
  step_.head_dim = static_cast<int32_t>(c.head_dim);
  step_.mlp_dim = static_cast<int32_t>(c.mlp_dim);
  for (size_t i = 0; i < layers; ++i)
    if (!put_layer(weights.decoder.layers[i], step_.layer[i], step_)) return;
  if (!weights.spec.logits_via_embedding && is_plain(weights.logits)) {
    step_.norm = floats(weights.decoder.norm);
    step_.logits_weights = pointer(weights.logits);
    step_.logit_scale = static_cast<float>(weights.spec.logit_scale());
    step_.vocab = static_cast<int32_t>(weights.spec.vocab_size);
  }
  const int64_t bytes = Device::current().kernels().decode_step_workspace(step_);
  if (bytes == 0) return;
  workspace_ = device_array(bytes, DType::u8);
  step_.workspace = workspace_.local().pointer;
  Device::current().fill(step_.workspace, 0, bytes);
}

bool WholeStep::queue(const Tensor& x) const {
  DecodeStep step = step_;
  step.x = step.out = x.local().pointer;
  Device::current().kernels().decode_step(step, Device::current().stream());
  return step.logits_weights != nullptr;
}

}  // namespace quintet::decoding
