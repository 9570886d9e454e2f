#include "apps/train/training.h"

#include "apps/config/entry_point.h"
#include "apps/input/run_vocabularies.h"
#include "apps/input/same_data.h"
#include "apps/train/batch_memory.h"
#include "apps/train/train_loop.h"
#include "apps/train/train_memory.h"
#include "data/reading/work_chunks.h"
#include "runtime/base/clock.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/process/messages.h"
#include "runtime/profile/profile.h"

namespace quintet {
namespace {

std::vector<SharedData> data_of(const TrainConfig& config, const ProviderOf& provider_of) {
  std::vector<SharedData> sets{{"train", provider_of(config.train_dataset), config.train_dataset}};
  if (const auto& set = config.train_eval_dataset)
    sets.push_back({"train_eval", provider_of(*set), *set});
  if (const auto& set = config.infer_eval_dataset)
    sets.push_back({"infer_eval", provider_of(*set), *set});
  return sets;
}

/// What the entry point does with its arguments, on a rank that trains or serves data.
int train(GinSession& session, const gin::Arguments& arguments, const TrainingFlags& flags,
          Ranks& ranks, DataService& service) {
  TrainConfig config = train_config_from(arguments);
  ranks.agree_on("configuration", config.config_text);
  check_batches_fit(config, ranks.size());
  config.train_dataset.strict_data |= flags.strict_data;
  config.trainer.step_graph = !flags.no_step_graph;
  flags.microbatches.apply_to(config.trainer, ranks.size());
  config.trainer.optimizer_offload = flags.optimizer_offload && !Device::current().is_cpu();
  if (flags.optimizer_offload && ranks.leads() && Device::current().is_cpu())
    print_warning("--optimizer_offload has no effect: the device is cpu");
  if (config.fp8.enabled && ranks.leads() && Device::current().is_cpu())
    print_warning(
        "te_helper.TransformerEngineConfig.enabled: the CPU rounds to 8 bits and multiplies in "
        "float32, slower than without; "
        "it is for tests, a GPU with FP8 tensor cores for training");
  const auto provider_of = [&](const data::DatasetConfig& set) { return session.task(set); };
  agree_on_data(ranks, *config.model, data_of(config, provider_of), service.serves());
  if (service.serves()) {
    const data::DatasetConfig& set = config.train_dataset;
    service.serve(*provider_of(set), set,
                  converter_for(*config.model, data::converter_options(set)));
    return 0;
  }
  if (memory_is_limited() && ranks.size() == 1 && Device::current().is_cpu())
    require_memory(training_need(session, config, data::reader_threads(flags.data.threads)),
                   "training");
  return TrainLoop(std::move(config), ranks, provider_of, service.source()).run();
}

/// Before the entry point is called: vocabularies' files may be gone from their paths.
void use_copies_of_run(GinSession& session) {
  const gin::Value dir = session.config().evaluate("t5x.train.train.model_dir");
  if (const auto* path = dir.get_if<std::string>())
    use_copies_of(std::filesystem::path(local_path(*path)));
}

}  // namespace

int run_training(TrainingFlags flags, gin::CommandLine command_line, const std::string& arguments) {
  if (!flags.model_dir.empty())
    command_line.bindings.push_back("MODEL_DIR = " + gin::Value(flags.model_dir).repr());
  Ranks ranks(flags.ranks);
  ranks.agree_on_program(arguments);
  DataService service(flags.data, ranks.session());
  if (service.serves()) flags.compute.device = "cpu";
  if (!flags.compute_started) flags.compute.start();
  ranks.open(Device::current(), flags.data.ranks);

  Profile profile;
  Clock::time_point start;
  const auto prepare = [&](GinSession& session) {
    if (flags.launch.dry_run) return print_configuration(session, ranks.leads());
    start = Clock::now();
    use_copies_of_run(session);
    return true;
  };
  const Profile::Use use(flags.profile ? &profile : nullptr);
  const int code = run_entry_point(EntryPoint::train, command_line, prepare,
                                   [&](GinSession& session, const gin::Arguments& bound) {
                                     return train(session, bound, flags, ranks, service);
                                   });
  if (flags.profile && !flags.launch.dry_run && ranks.leads())
    fmt::print(stderr, "{}\n", profile.table(1, seconds_since(start)));
  return code;
}

}  // namespace quintet
