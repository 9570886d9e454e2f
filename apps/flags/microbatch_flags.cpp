#include "apps/flags/microbatch_flags.h"

#include <CLI/App.hpp>

#include "apps/flags/help_format.h"
#include "runtime/base/process/messages.h"

namespace quintet {

void MicrobatchFlags::add_to(CLI::App& app) {
  const HelpGroup group(app, "Computation");
  app.add_option(
         "--reduce_gradients", reduce_gradients,
         "when gradients are summed over ranks: after every microbatch, or once a step, which "
         "sends less and holds whole gradients")
      ->check(CLI::IsMember({"microbatch", "step"}));
  app.add_option(
         "--reduce_gradients_in", reduce_gradients_in,
         "what gradients are summed over ranks in; bfloat16 sends half the bytes and rounds "
         "what each rank gives and each sum")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  add_gradient_dtype_to(app);
  app.add_flag(
      "--interleave_microbatches", interleave_microbatches,
      "on several ranks: two microbatches take turns, so that one computes while the other "
      "waits for ranks");
}

void MicrobatchFlags::add_gradient_dtype_to(CLI::App& app) {
  const HelpGroup group(app, "Computation");
  app.add_option("--gradient_dtype", gradient_dtype,
                 "what gradients are kept in until the update; bfloat16 takes 2 bytes fewer a "
                 "parameter and "
                 "rounds what each microbatch adds")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
}

void MicrobatchFlags::add_microbatches_to(CLI::App& app) {
  app.add_option("--microbatches", microbatches, "parts of a rank's batch, one after the other")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
}

void MicrobatchFlags::apply_to(TrainerOptions& options, int64_t ranks) const {
  options.gradient_dtype = dtype_from_name(gradient_dtype);
  if (ranks == 1) {
    if (interleave_microbatches || reduce_gradients == "step" || reduce_gradients_in == "bfloat16")
      print_warning(
          "--interleave_microbatches, --reduce_gradients, --reduce_gradients_in: no "
          "effect on one rank");
    return;
  }
  options.reduction =
      reduce_gradients == "step" ? GradientReduction::step : GradientReduction::microbatch;
  options.reduction_dtype = dtype_from_name(reduce_gradients_in);
  options.interleave = interleave_microbatches;
}

TrainerOptions MicrobatchFlags::options(int64_t ranks) const {
  TrainerOptions options;
  options.num_microbatches = microbatches;
  apply_to(options, ranks);
  return options;
}

}  // namespace quintet
