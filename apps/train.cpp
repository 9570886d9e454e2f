// `quintet train`: T5X's train.py. Pretrains or fine-tunes as gin files say, and goes on by itself
// from the newest whole checkpoint of its model directory.

#include "apps/batch_memory.h"
#include "apps/cli.h"
#include "apps/compute_flags.h"
#include "apps/data_flags.h"
#include "apps/data_service.h"
#include "apps/ranks.h"
#include "apps/run_vocabularies.h"
#include "apps/same_data.h"
#include "apps/session.h"
#include "apps/train_loop.h"
#include "apps/train_memory.h"
#include "apps/verbs.h"
#include "data/reading/units.h"
#include "runtime/base/clock.h"
#include "runtime/profile.h"

namespace quintet {
namespace {

struct TrainFlags {
  std::string model_dir, run_mode = "train";
  ComputeFlags compute;
  RankFlags ranks;
  DataServiceFlags data;
  bool dry_run = false, profile = false, strict_data = false, no_step_graph = false,
       ignored = false;
};

void add_flags(CommandLine& cli, TrainFlags& flags) {
  CLI::App& app = cli.app();
  app.add_option("--gin_file", "a gin file; may be repeated, later ones win");
  app.add_option("--gin_bindings",
                 "a binding, as in --gin_bindings='BATCH_SIZE = 8'; may be repeated");
  app.add_option("--gin_search_paths", "folders of gin files, with commas between");
  app.add_option("--model_dir", flags.model_dir, "short for --gin.MODEL_DIR=\"'...'\"");
  flags.compute.add_to(app);
  flags.ranks.add_to(app);
  flags.data.add_to(app);
  app.add_flag("--strict_data", flags.strict_data,
               "end if data files have changed since the checkpoint, instead of a warning");
  app.add_flag("--dry_run", flags.dry_run, "print the configuration and end");
  app.add_flag("--profile", flags.profile, "time and bytes of each op at the end, on stderr");
  app.add_flag("--no_step_graph", flags.no_step_graph,
               "on a GPU: launch every kernel of every step, instead of a recorded CUDA graph");
  app.add_option("--run_mode", flags.run_mode, "train")->check(CLI::IsMember({"train"}));
  describe_data_flags(app);
  app.add_flag("--multiprocess_gpu", flags.ignored)->group("");  // T5X's, without meaning here
}

std::vector<SharedData> data_of(const TrainConfig& config,
                                const TrainLoop::ProviderOf& provider_of) {
  std::vector<SharedData> sets{{"train", provider_of(config.train_dataset), config.train_dataset}};
  if (const auto& set = config.train_eval_dataset)
    sets.push_back({"train_eval", provider_of(*set), *set});
  if (const auto& set = config.infer_eval_dataset)
    sets.push_back({"infer_eval", provider_of(*set), *set});
  return sets;
}

/// The model of a configuration anew: it is no cheap copy, but has memory only once it is
/// allocated.
ModelAndOptimizer model_of(Session& session) {
  const std::string name = "t5x.train.train.model";
  const auto configured =
      gin::as<std::shared_ptr<ConfiguredModel>>(session.config().evaluate(name), {name});
  QT_CHECK(configured->optimizer != nullptr, "{}: has no optimizer", name);
  return {configured->model, configured->optimizer};
}

}  // namespace

int run_train(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  gin::CommandLine gin_line = extract_data_command_line(left);
  TrainFlags flags;
  CommandLine cli("train", "Trains as gin files say; goes on from the newest checkpoint.",
                  "quintet train --gin_file=quintet/quickstart.gin --model_dir=/tmp/numbers\n"
                  "quintet train --gin_file=my_t5.gin --gin_file=my_run.gin --gin.BATCH_SIZE=64");
  add_flags(cli, flags);
  if (!cli.parse(left)) return 0;
  QT_CHECK(!gin_line.files.empty() || !gin_line.bindings.empty(),
           "quintet train: no configuration; name one with --gin_file=FILE");
  if (!flags.model_dir.empty())
    gin_line.bindings.push_back("MODEL_DIR = " + gin::Value(flags.model_dir).repr());
  Ranks ranks(flags.ranks);
  ranks.agree_on("build", build_text());
  ranks.agree_on("command line", fmt::format("{}", fmt::join(args, "\n")));
  DataService service(flags.data, ranks.session());
  if (service.serves()) flags.compute.device = "cpu";
  flags.compute.start();
  ranks.open(Device::current(), flags.data.ranks);

  Session* session_of_run = nullptr;
  int code = 0;
  const auto train = [&](const gin::Arguments& arguments) -> gin::Value {
    TrainConfig config = train_config_from(arguments);
    ranks.agree_on("configuration", config.config_text);
    check_batches_fit(config, ranks.size());
    config.train_dataset.strict_data |= flags.strict_data;
    config.trainer.step_graph = !flags.no_step_graph;
    const auto provider_of = [&](const data::DatasetConfig& set) {
      return session_of_run->task(set);
    };
    agree_on_data(ranks, *config.model, data_of(config, provider_of), service.serves());
    if (service.serves()) {
      const data::DatasetConfig& set = config.train_dataset;
      service.serve(*provider_of(set), set,
                    converter_for(*config.model, data::converter_options(set)));
      return {};
    }
    if (memory_is_limited() && ranks.size() == 1 && Device::current().is_cpu())
      require_memory(training_need(
                         config, [&] { return model_of(*session_of_run); },
                         data::reader_threads(flags.data.threads)),
                     "training");
    TrainLoop loop(std::move(config), ranks, provider_of, service.source());
    code = loop.run();
    return {};
  };
  Session session(gin_line, {.train = train, .evaluate = {}, .infer = {}},
                  {.main_modules = {"t5x.train"}});
  session_of_run = &session;
  if (flags.dry_run) {
    if (ranks.leads()) fmt::print("{}", session.config().config_str());
    return 0;
  }
  Profile profile;
  if (flags.profile) Profile::current() = &profile;
  const auto start = Clock::now();
  if (const gin::Value dir = session.config().evaluate("t5x.train.train.model_dir");
      dir.get_if<std::string>() != nullptr)
    use_copies_of(std::filesystem::path(*dir.get_if<std::string>()));
  session.config().call("t5x.train.train");
  Profile::current() = nullptr;
  if (flags.profile && ranks.leads())
    fmt::print(stderr, "{}\n", profile.table(1, seconds_since(start)));
  return code;
}

}  // namespace quintet
