#pragma once
// Mixture of experts in place of a layer's MLP, after flaxformer's architectures/moe (Switch
// Transformer arXiv:2101.03961, ST-MoE 2202.08906, expert choice 2202.09368).
//
//   MoeLayer layer(scope / "mlp", config, moe);
//   Tensor y = layer(x, context, &routing);     // routing: its losses and who went where

#include <span>

#include "models/layers.h"
#include "runtime/metrics/metric.h"

namespace quintet {

/// gin: moe_enums.LayerLayout: where a stack's sparse layers are. Ours is `second`, as transformers places them:
/// the second of every num_layers / num_sparse_layers (rounded down) layers, or all if that is 1.
enum class LayerLayout { bottom, middle, mixed, top, second };
/// Throws a usage error that lists the known names.
LayerLayout layer_layout_from_name(const std::string& name);

/// gin: routing.TokensChooseMaskedRouter, TokensChooseScatterRouter, ExpertsChooseMaskedRouter.
struct RouterConfig {
  Router kind = Router::tokens_choose;
  int64_t num_selected_experts = 1;
  bool batch_prioritized_routing = false;
  bool ignore_padding_tokens = false;
  double jitter_noise = 0;
  double weights_stddev = 2e-2;  // of the router's initial weights
  bool use_bias = false;         // logits have one; 0 at first
};

/// gin: moe_layers.MoeLayer and its expert, a dense.MlpBlock.
struct MoeConfig {
  int64_t num_experts = 0;
  int64_t max_group_size = 4096;
  double train_capacity_factor = 1, eval_capacity_factor = 1;
  int64_t min_expert_capacity = 4;
  bool strict_group_size = false;
  bool dropless = false;  // experts serve whoever comes; ours
  // Tokens of a sequence that an expert serves, the first that choose it; 0: the factors above say. What
  // transformers calls so; padding counts for nothing.
  int64_t expert_capacity = 0;
  int64_t mlp_dim = 0;
  std::vector<std::string> activations = {"relu"};
  double dropout_rate = 0;  // between an expert's products
  RouterConfig router{};

  /// Whether in generation, where all tokens are served, where a token goes depends on others.
  bool routes_sequences() const {
    return router.kind == Router::experts_choose || expert_capacity > 0;
  }
};

/// Which layers of a stack are mixtures of experts, and these: moe_architecture.SparseEncoder, SparseDecoder.
struct SparseStack {
  int64_t num_sparse_layers = 0;
  LayerLayout layout = LayerLayout::mixed;
  MoeConfig moe{};

  /// Throws a usage error if sparse layers are mixed and do not divide the layers.
  bool is_sparse(int64_t layer, int64_t num_layers) const;
  /// With `second` there may be more than num_sparse_layers.
  int64_t count(int64_t num_layers) const;
  /// Whether a token's result depends on the other sequences of its batch.
  bool routes_batches() const {
    return num_sparse_layers > 0 && moe.router.kind == Router::experts_choose;
  }
  /// Throws a usage error if a decoder of such layers cannot write token after token.
  void check_generates() const;
};

/// How tokens are divided for routing. All figures are of the rows that a loss is taken of.
struct Groups {
  int64_t padded_batch = 0, padded_length = 0;  // tokens are padded to a multiple of the experts
  int64_t count = 0, size = 0;
};
/// flaxformer's _maybe_pad.
Groups padded(int64_t batch, int64_t length, int64_t num_experts, int64_t num_expert_replicas = 1);
/// flaxformer's _num_groups: the fewest groups of at most max_group_size tokens that are a multiple
/// of all experts and divide the tokens. Throws a usage error if there is no such number, or if
/// `strict` and the size is not max_group_size.
int64_t num_groups(int64_t num_tokens, int64_t max_group_size, int64_t num_experts,
                   int64_t num_expert_replicas = 1, bool strict = false);
/// Choices that an expert serves of a group.
int64_t expert_capacity(double capacity_factor, int64_t tokens_per_group, int64_t num_experts,
                        int64_t min_expert_capacity);

/// How x [batch, length, ..] is routed, without jitter. Throws a usage error for sizes that make no groups.
ops::RouteOptions routing_of(const MoeConfig& moe, int64_t batch, int64_t length, bool train);
/// The same in generation: where tokens choose, all are served, so that no answer depends on others, unless
/// there is an expert_capacity.
ops::RouteOptions inference_routing(const MoeConfig& moe, int64_t batch, int64_t length);

/// What a sparse layer leaves for losses and metrics.
struct LayerRouting {
  Tensor auxiliary_loss, z_loss;  // scalars
  Tensor counts, load;            // of kernels/moe/route.h

  Tensors tensors() const { return {auxiliary_loss, z_loss, counts, load}; }
  bool absent() const { return counts.absent(); }
};

class MoeLayer {
 public:
  /// Throws a usage error for sizes, factors or routers that make no layer.
  MoeLayer(const Scope& scope, const LayerConfig& config, const MoeConfig& moe);
  /// x: [batch, length, embed] -> the same. Tokens without an expert give 0.
  Tensor operator()(const Tensor& x, const Context& context, LayerRouting* left = nullptr) const;

 private:
  MoeConfig config_;
  DropoutPlace jitter_, dropout_;
  Param router_, router_bias_, wi_0_, wi_1_, wo_;  // router_bias, wi_1: may be absent
};

/// Metrics of flaxformer's layers, means over layers, by their names below "experts/"; the losses
/// are not multiplied by any factor. `counts`: LayerRouting's.
struct RoutingMetrics {
  double fraction_tokens_left_behind = 0, expert_usage = 0, router_confidence = 0;
};
RoutingMetrics routing_metrics(std::span<const HostArray> counts);
/// Load balance of each sparse layer, in the order in which they run: "experts/load/layer_0/most" and
/// "least", choices served by the busiest and the idlest expert, of up to kNamedExperts experts also
/// each one's ("expert_00"); all over those of an even share.
Metrics load_metrics(std::span<const HostArray> loads);
inline constexpr int64_t kNamedExperts = 64;

}  // namespace quintet
