#include "models/moe.h"

#include <algorithm>
#include <cmath>

namespace quintet {
namespace {

/// How much padding of one axis makes `tokens` plus `step` at a time a multiple of `experts`.
int64_t steps_to_multiple(int64_t tokens, int64_t step, int64_t experts) {
  int64_t steps = 1;
  while ((tokens + steps * step) % experts != 0) ++steps;
  return steps;
}

double ratio(double a, double b) { return b == 0 ? 0 : a / b; }

LayerConfig with_dropout(LayerConfig config, double rate) {
  config.dropout_rate = rate;
  return config;
}

}  // namespace

LayerLayout layer_layout_from_name(const std::string& name) {
  if (name == "bottom") return LayerLayout::bottom;
  if (name == "middle") return LayerLayout::middle;
  if (name == "mixed") return LayerLayout::mixed;
  if (name == "second") return LayerLayout::second;
  QT_CHECK(name == "top",
           "sparse_layout: expected bottom, middle, mixed, top or second, found '{}'", name);
  return LayerLayout::top;
}

bool SparseStack::is_sparse(int64_t layer, int64_t num_layers) const {
  const int64_t sparse = num_sparse_layers;
  QT_CHECK(sparse >= 0 && sparse <= num_layers,
           "num_sparse_layers: expected 0 to num_layers={}, found {}", num_layers, sparse);
  if (sparse == 0) return false;
  switch (layout) {
    case LayerLayout::bottom:
      return layer < sparse;
    case LayerLayout::middle:
      return num_layers - sparse <= 2 * layer && 2 * layer < num_layers + sparse;
    case LayerLayout::top:
      return layer >= num_layers - sparse;
    case LayerLayout::second:
      return num_layers / sparse == 1 || layer % (num_layers / sparse) == 1;
    case LayerLayout::mixed:
      break;
  }
  QT_CHECK(
      num_layers % sparse == 0,
      "sparse_layout: mixed needs num_sparse_layers={} to divide num_layers={}; choose another "
      "number or bottom, middle, top or second",
      sparse, num_layers);
  const int64_t every = num_layers / sparse;
  return layer % every == every - 1;
}

int64_t SparseStack::count(int64_t num_layers) const {
  int64_t count = 0;
  for (int64_t i = 0; i < num_layers; ++i) count += is_sparse(i, num_layers) ? 1 : 0;
  return count;
}

void SparseStack::check_generates() const {
  QT_CHECK(num_sparse_layers == 0 || moe.router.kind != Router::experts_choose,
           "generation: experts of a decoder cannot choose tokens, later ones are not there yet");
}

Groups padded(int64_t batch, int64_t length, int64_t num_experts, int64_t num_expert_replicas) {
  const int64_t experts = num_experts * num_expert_replicas, tokens = batch * length;
  Groups groups{.padded_batch = batch, .padded_length = length};
  if (tokens % experts == 0) return groups;
  const int64_t more_rows = steps_to_multiple(tokens, length, experts);
  const int64_t more_columns = steps_to_multiple(tokens, batch, experts);
  if (more_columns * batch > more_rows * length)
    groups.padded_batch += more_rows;
  else
    groups.padded_length += more_columns;
  return groups;
}

int64_t num_groups(int64_t num_tokens, int64_t max_group_size, int64_t num_experts,
                   int64_t num_expert_replicas, bool strict) {
  QT_CHECK(max_group_size > 0 && num_experts > 0,
           "MoeLayer: max_group_size and num_experts must be positive, found {} and {}",
           max_group_size, num_experts);
  const int64_t experts = num_experts * num_expert_replicas;
  int64_t groups = std::max(num_tokens / max_group_size, experts);
  while (groups < num_tokens && (num_tokens % groups != 0 || groups % experts != 0)) ++groups;
  QT_CHECK(num_tokens % groups == 0,
           "MoeLayer: {} tokens cannot be divided into groups, a multiple of {} experts; take more "
           "tokens (batch size, length or beams) or fewer experts",
           num_tokens, experts);
  QT_CHECK(!strict || num_tokens / groups == max_group_size,
           "MoeLayer: groups would have {} tokens, but strict_group_size asks for "
           "max_group_size={}; change the batch or set strict_group_size = False",
           num_tokens / groups, max_group_size);
  return groups;
}

int64_t expert_capacity(double capacity_factor, int64_t tokens_per_group, int64_t num_experts,
                        int64_t min_expert_capacity) {
  // nearbyint: halves go to even, as Python's round does.
  const auto wanted = static_cast<int64_t>(std::nearbyint(
      capacity_factor * static_cast<double>(tokens_per_group) / static_cast<double>(num_experts)));
  return std::max(wanted, min_expert_capacity);
}

MoeLayer::MoeLayer(const Scope& scope, const LayerConfig& config, const MoeConfig& moe)
    : config_(moe),
      jitter_(scope, "jitter", "", 0),
      dropout_(scope / "expert", "dropout", "Dropout_0", with_dropout(config, moe.dropout_rate)) {
  const int64_t experts = moe.num_experts, chosen = moe.router.num_selected_experts;
  QT_CHECK(
      experts > 0 && moe.mlp_dim > 0,
      "MoeLayer: num_experts and the experts' intermediate_dim must be positive, found {} and {}",
      experts, moe.mlp_dim);
  QT_CHECK(moe.router.kind == Router::experts_choose || (chosen > 0 && chosen <= experts),
           "num_selected_experts: expected 1 to num_experts={}, found {}", experts, chosen);
  QT_CHECK(moe.router.jitter_noise >= 0 && moe.router.jitter_noise < 1,
           "jitter_noise: expected 0 <= jitter_noise < 1, found {}", moe.router.jitter_noise);
  QT_CHECK(moe.activations.size() == 1 || moe.activations.size() == 2,
           "activations of experts: expected one or two names, found {}", moe.activations.size());
  QT_CHECK(!moe.dropless || moe.router.kind != Router::experts_choose,
           "dropless: experts that choose need a capacity; only tokens can choose without one");
  QT_CHECK(
      moe.expert_capacity == 0 ||
          (moe.expert_capacity > 0 && !moe.dropless && chosen == 1 &&
           moe.router.kind != Router::experts_choose && !moe.router.batch_prioritized_routing),
      "expert_capacity: expected 0 or, of experts that tokens choose, one each and in their order "
      "(num_selected_experts = 1, batch_prioritized_routing and dropless False), a positive "
      "number; found {}",
      moe.expert_capacity);
  const bool gated = moe.activations.size() == 2;
  const Axis embed{axis::kEmbed, config.emb_dim};
  const Axis expert{axis::kExpert, experts}, mlp{axis::kExpertMlp, moe.mlp_dim};
  const auto kernel = [&](const std::string& name, const Axis& in, const Axis& out) {
    return (scope / "expert" / name)
        .param("kernel", {expert, in, out},
               normal_initializer(std::sqrt(config.init_scale / static_cast<double>(in.size))));
  };
  const Scope router = scope / "router" / "router_weights" / "w";
  router_ = router.param("kernel", {embed, {axis::kUnmodeled, experts}},
                         normal_initializer(moe.router.weights_stddev));
  if (moe.router.use_bias)
    router_bias_ = router.param("bias", {{axis::kUnmodeled, experts}}, zeros_initializer());
  wi_0_ = kernel(gated ? "wi_0" : "wi", embed, mlp);
  if (gated) wi_1_ = kernel("wi_1", embed, mlp);
  wo_ = kernel("wo", mlp, embed);
}

ops::RouteOptions routing_of(const MoeConfig& moe, int64_t batch, int64_t length, bool train) {
  const int64_t experts = moe.num_experts;
  if (moe.expert_capacity > 0)
    return {.router = moe.router.kind,
            .capacity = moe.expert_capacity,
            .group_size = length,
            .groups = batch,
            .ignore_padding = true};
  // A router with a bias is not padded, and where nobody is turned away groups matter for losses alone.
  if (moe.dropless && moe.router.use_bias)
    return {.router = moe.router.kind,
            .num_selected_experts = moe.router.num_selected_experts,
            .group_size = length,
            .groups = batch,
            .ignore_padding = moe.router.ignore_padding_tokens};
  const Groups groups = padded(batch, length, experts);
  const int64_t tokens = groups.padded_batch * groups.padded_length;
  const int64_t count = num_groups(tokens, moe.max_group_size, experts, 1, moe.strict_group_size);
  const double factor = train ? moe.train_capacity_factor : moe.eval_capacity_factor;
  const int64_t capacity =
      expert_capacity(factor, tokens / count, experts, moe.min_expert_capacity);
  QT_CHECK(moe.dropless || capacity > 0,
           "MoeLayer: experts would serve nobody: capacity factor {} for {} tokens and {} experts; "
           "raise {}_capacity_factor or min_expert_capacity",
           factor, tokens / count, experts, train ? "train" : "eval");
  const bool is_padded = groups.padded_batch != batch || groups.padded_length != length;
  return {.router = moe.router.kind,
          .num_selected_experts = moe.router.num_selected_experts,
          .capacity = moe.dropless ? 0 : capacity,
          .group_size = tokens / count,
          .groups = count,
          .batch_priority = moe.router.batch_prioritized_routing,
          .ignore_padding = moe.router.ignore_padding_tokens,
          .padded_batch = is_padded ? groups.padded_batch : 0,
          .padded_length = is_padded ? groups.padded_length : 0};
}

ops::RouteOptions inference_routing(const MoeConfig& moe, int64_t batch, int64_t length) {
  if (moe.routes_sequences()) return routing_of(moe, batch, length, false);
  return {.num_selected_experts = moe.router.num_selected_experts,
          .group_size = batch * length,
          .groups = 1};
}

Tensor MoeLayer::operator()(const Tensor& x, const Context& context, LayerRouting* left) const {
  ops::RouteOptions routing =
      routing_of(config_, x.global_slice().sizes[0], x.global_slice().sizes[1], context.train);
  if (context.train) {
    routing.jitter = config_.router.jitter_noise;
    routing.jitter_key = jitter_.key(context);
  }
  const ops::Routed routed =
      ops::route(x, router_, router_bias_.absent() ? Tensor() : router_bias_.tensor(), routing);
  Tensor h = ops::dispatch(x, routed);  // [batch, rows, embed], packed by expert
  h = ops::experts_in(h, routed.offsets, wi_0_, wi_1_.absent() ? Tensor() : wi_1_.tensor(),
                      config_.activations);  // [batch, rows, expert_mlp]
  h = ops::experts_dropout(h, routed.offsets, dropout_.of_experts(context));
  h = ops::grouped_matmul(h, routed.offsets, wo_);  // [batch, rows, embed]
  if (left != nullptr) *left = {routed.auxiliary_loss, routed.z_loss, routed.counts, routed.load};
  return ops::combine(h, routed);  // [batch, length, embed]
}

RoutingMetrics routing_metrics(std::span<const HostArray> counts) {
  RoutingMetrics mean;
  for (const HostArray& layer : counts) {
    const auto at = [&](size_t i) { return static_cast<double>(layer.as<float>()[i]); };
    mean.fraction_tokens_left_behind += 1 - ratio(at(0), at(3));
    mean.expert_usage += ratio(at(1), at(4));
    mean.router_confidence += ratio(at(2), at(1));
  }
  const double count = std::max<double>(1, static_cast<double>(counts.size()));
  return {mean.fraction_tokens_left_behind / count, mean.expert_usage / count,
          mean.router_confidence / count};
}

Metrics load_metrics(std::span<const HostArray> loads) {
  Metrics metrics;
  for (size_t i = 0; i < loads.size(); ++i) {
    const std::string layer = fmt::format("experts/load/layer_{}/", i);
    const std::span<const float> load = loads[i].as<float>();
    double share = 0;
    for (const float served : load) share += static_cast<double>(served);
    share /= static_cast<double>(load.size());
    const auto log = [&](const std::string& name, float served) {
      metrics[layer + name] = {static_cast<double>(served), share};
    };
    log("least", *std::min_element(load.begin(), load.end()));
    log("most", *std::max_element(load.begin(), load.end()));
    for (size_t e = 0; e < load.size() && load.size() <= kNamedExperts; ++e)
      log(fmt::format("expert_{:02}", e), load[e]);
  }
  return metrics;
}

}  // namespace quintet
