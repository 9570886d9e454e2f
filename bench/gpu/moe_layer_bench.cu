// A mixture of experts in place of a layer's MLP on a GPU, as a training step runs it, beside the dense MLP that costs as
// much a token: forward, and the backward pass with all gradients.
//
//   moe_layer_bench --device=cuda [--tiny] [--only=e8_k1] [--runs=20]
//
// A line a measurement (bench/gpu/README.md), workload M1: variants quintet and quintet_dense. Width 768, 2,048 columns an
// expert, capacity factor 1.25 of a training step.

#include "bench/gpu/device_bench.cuh"
#include "models/moe.h"
#include "runtime/execution/tape.h"

namespace quintet::bench {
namespace {

struct Case {
  int64_t tokens, experts, chosen, width = 768, columns = 2048;
  std::string name() const {
    return fmt::format("moe_{}_{}_e{}_k{}_{}", width, columns, experts, chosen, tokens);
  }
};

using Layer = std::function<Tensor(const Tensor&, const Context&)>;

Tensor random_tokens(const Case& c, uint32_t seed) {
  HostArray values(DType::bf16, {c.tokens / 8, 8, c.width});
  const auto to = values.as<bfloat16>();
  for (size_t i = 0; i < to.size(); ++i)
    to[i] = bfloat16(random_uniform(random_bits(key_from_seed(seed), i)) - 0.5f);
  return Tensor::from_host(values, {axis::kBatch, axis::kLength, axis::kEmbed});
}

void print(const Case& c, const char* part, const char* variant, const std::vector<double>& ms) {
  fmt::print(
      "{{\"workload\": \"M1\", \"case\": \"{}\", \"part\": \"{}\", \"variant\": \"{}\", \"ms\": "
      "[{:.5f}]}}\n",
      c.name(), part, variant, fmt::join(ms, ", "));
  std::fflush(stdout);
}

void measure(const Case& c, const char* variant, int runs, Parameters& parameters,
             const Layer& layer) {
  parameters.set_compute_dtype(DType::bf16);
  parameters.initialize(key_from_seed(1));
  Tensor x = random_tokens(c, 2);
  const Tensor dy = random_tokens(c, 3);
  const Context context{.train = true};
  print(c, "forward", variant, time_calls(runs, [&](int) { layer(x, context); }));
  x.set_needs_grad(true);
  std::optional<Tape> tape;
  Tensor y;
  // What the backward pass needs is made ahead of it, as in a step.
  print(c, "backward", variant,
        time_calls(
            runs,
            [&](int) {
              tape->backward({y}, {dy});
              x.set_grad({});
              for (const ParamInfo& info : parameters.all()) info.value.set_grad({});
            },
            [&] {
              tape.emplace();
              const Tape::Recording recording(*tape);
              y = layer(x, context);
            }));
}

void measure(const Case& c, int runs) {
  LayerConfig config;
  config.emb_dim = c.width;
  config.dropout_rate = 0;
  config.mlp_dim = c.columns;
  {
    Parameters parameters;
    const MoeLayer sparse(Scope(parameters), config,
                          {.num_experts = c.experts,
                           .train_capacity_factor = 1.25,
                           .mlp_dim = c.columns,
                           .router = {.num_selected_experts = c.chosen}});
    measure(c, "quintet", runs, parameters,
            [&](const Tensor& x, const Context& context) { return sparse(x, context); });
  }
  Parameters parameters;
  config.mlp_dim = c.columns * c.chosen;
  const MlpBlock dense(Scope(parameters), config);
  measure(c, "quintet_dense", runs, parameters,
          [&](const Tensor& x, const Context& context) { return dense({x}, context); });
}

void run(const Options& options) {
  std::vector<Case> cases{{.tokens = 64, .experts = 4, .chosen = 2, .width = 32, .columns = 48}};
  if (!options.tiny) cases.clear();
  for (const int64_t tokens : {16384, 65536})
    for (const int64_t experts : {8, 64, 128})
      for (const int64_t chosen : {1, 2})
        if (!options.tiny) cases.push_back({tokens, experts, chosen});
  for (const Case& c : cases)
    if (options.wants(c.name())) measure(c, options.runs);
}

}  // namespace
}  // namespace quintet::bench

int main(int argc, char** argv) {
  return quintet::bench::run_program(argc, argv, quintet::bench::run);
}
