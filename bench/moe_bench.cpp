// Milliseconds of processor time (other work on the machine then hardly counts) of a sparse layer with E experts, forward
// and with its gradients, beside the dense MLP that costs as much a token and the time to read the experts' weights
// once: one JSON object a line. bench/moe_compare.py runs it beside its peers.
//
//   ninja -C build moe_bench && OMP_NUM_THREADS=1 build/tests/models/moe_bench [TOKENS EMBED MLP]

#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <functional>

#include "models/moe.h"
#include "runtime/execution/tape.h"

namespace quintet {
namespace {

struct Sizes {
  int64_t tokens = 4096, embed = 512, mlp = 1024;
};

double best_of(int times, const std::function<void()>& body) {
  double best = 1e9;
  for (int i = 0; i < times + 1; ++i) {
    const std::clock_t begin = std::clock();
    body();
    const double took = 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    if (i > 0) best = std::min(best, took);
  }
  return best;
}

Tensor random_tokens(const Sizes& s, uint32_t seed) {
  HostArray values(DType::f32, {8, s.tokens / 8, s.embed});
  for (size_t i = 0; i < values.as<float>().size(); ++i)
    values.as<float>()[i] = random_uniform(random_bits(key_from_seed(seed), i)) - 0.5F;
  return Tensor::from_host(values, {axis::kBatch, axis::kLength, axis::kEmbed});
}

/// Times of `layer` without and with gradients of everything.
void measure(const std::string& name, const Sizes& s, Parameters& parameters, int64_t experts,
             const std::function<Tensor(const Tensor&, const Context&)>& layer) {
  parameters.initialize(key_from_seed(1));
  Tensor x = random_tokens(s, 2);
  x.set_needs_grad(true);
  const Tensor dy = random_tokens(s, 3);
  const Context context{.train = true, .dropout_key = {}};
  const double forward = best_of(5, [&] { layer(x, context); });
  const double both = best_of(5, [&] {
    Tape tape;
    Tensor y;
    {
      const Tape::Recording recording(tape);
      y = layer(x, context);
    }
    tape.backward({y}, {dy});
    x.set_grad({});
    for (const ParamInfo& info : parameters.all()) info.value.set_grad({});
  });
  float sum = 0;
  const double read = best_of(5, [&] {
    for (const ParamInfo& info : parameters.all()) {
      const auto values = info.value.data<float>();
#pragma omp parallel for reduction(+ : sum)
      for (size_t i = 0; i < values.size(); i += 16) sum += values[i];
    }
  });
  fmt::print(
      "{{\"program\": \"quintet\", \"layer\": \"{}\", \"experts\": {}, \"tokens\": {}, "
      "\"forward_ms\": {:.2f}, \"forward_backward_ms\": {:.2f}, \"read_weights_ms\": {:.2f}, "
      "\"checked\": {}}}\n",
      name, experts, s.tokens, forward, both, read, sum == sum);
}

void run(const Sizes& s) {
  LayerConfig config;
  config.emb_dim = s.embed;
  config.mlp_dim = s.mlp;
  config.dropout_rate = 0;
  {
    Parameters parameters;
    const MlpBlock dense(Scope(parameters), config);
    measure("dense", s, parameters, 1, dense);
  }
  for (const bool dropless : {false, true})
    for (const int64_t experts : {8, 16, 32, 64}) {
      Parameters parameters;
      const MoeLayer sparse(Scope(parameters), config,
                            {.num_experts = experts,
                             .train_capacity_factor = 1.25,
                             .dropless = dropless,
                             .mlp_dim = s.mlp});
      measure(dropless ? "dropless" : "switch", s, parameters, experts,
              [&](const Tensor& x, const Context& context) { return sparse(x, context); });
    }
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  quintet::Sizes sizes;
  if (argc == 4) sizes = {std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3])};
  quintet::run(sizes);
}
