// `quintet bench train`: seconds of a training step, without remat.

#include "apps/bench/bench.h"
#include "apps/bench/bench_models.h"
#include "models/fp8.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/optax/optax.h"
#include "runtime/optim/schedules.h"
#include "runtime/trainer/trainer.h"

namespace quintet {

namespace {
constexpr double kRate = 1e-3;
}

int run_bench_train(std::span<char* const> args) {
  BenchOptions options;
  if (!parse_bench_options("train", "Times training steps of a T5 1.1.", args, false, options))
    return 0;
  LossOptions loss;
  loss.z_loss = 1e-4;
  T5Config config = published_model_config(options.model, options.dtype);
  config.dropout_rate = options.dropout;
  EncoderDecoderModel model(config, loss);
  use_fp8(model, {.enabled = options.fp8});
  model.parameters().initialize(key_from_seed(0));
  const bool packs = !options.examples.empty();
  const HostArrays batch =
      packs ? packed_batch(options, model.vocab_size()) : random_batch(options, model.vocab_size());
  if (packs) options.batch = batch.at("decoder_target_tokens").shape[0];
  Trainer trainer(
      [&model](const HostArrays& features, int64_t begin, int64_t end, Key key) {
        return model.loss_fn(features, {begin, end}, {.train = true, .dropout_key = key});
      },
      model.parameters(),
      options.optimizer == "adafactor" ? adafactor() : optax_optimizer(adamw(kRate)),
      {.loss_is_total = true, .learning_rate = constant_schedule(kRate)}, key_from_seed(1));
  time_steps("train", options, options.batch * (options.inputs + options.targets),
             [&] { trainer.train(batch); });
  return 0;
}

}  // namespace quintet
