// `quintet bench train`: seconds of a training step with AdamW, without dropout and remat.

#include "apps/bench.h"
#include "apps/bench_models.h"
#include "runtime/optim/optax.h"
#include "runtime/trainer.h"

namespace quintet {

int run_bench_train(std::span<char* const> args) {
  BenchOptions options;
  if (!parse_bench_options("train", "Times training steps of a T5 1.1 (AdamW, no dropout).", args,
                           false, options))
    return 0;
  LossOptions loss;
  loss.z_loss = 1e-4;
  EncoderDecoderModel model(bench_model_config(options.model, options.dtype), loss);
  model.parameters().initialize(key_from_seed(0));
  const HostArrays batch = random_batch(options, model.vocab_size());
  Trainer trainer(
      [&model](const HostArrays& features, int64_t begin, int64_t end, Key key) {
        LossOutput out = model.loss_fn(features, {begin, end}, {.train = true, .dropout_key = key});
        return StepLoss{std::move(out.loss), std::move(out.metrics)};
      },
      model.parameters(), optax_optimizer(adamw(1e-3)), {}, key_from_seed(1));
  time_steps("train", options, options.batch * (options.inputs + options.targets),
            [&] { trainer.train(batch); });
  return 0;
}

}  // namespace quintet
