#include "apps/plan/gin_case.h"

#include <cstdio>
#include <mutex>
#include <numeric>

#include "apps/config/show/parsed_config.h"
#include "models/configurables.h"
#include "models/fp8.h"
#include "runtime/gin/registry/builtins.h"
#include "runtime/mpi/session.h"

namespace quintet {

namespace {

/// T5X's files leave DROPOUT_RATE to each run.
bool needs_dropout_rate(const gin::CommandLine& line) {
  gin::Registry registry;
  register_everything(registry);
  const auto config = parsed_config(registry, line);
  const gin::Value* rate = config->query("DROPOUT_RATE");
  return rate != nullptr && *rate == gin::Value(gin::Macro{gin::kRequiredName});
}

}  // namespace

std::unique_ptr<GinSession> model_session(const std::string& verb, gin::CommandLine line) {
  QT_CHECK(!line.files.empty(), "quintet {}: no model; name a gin file that defines MODEL", verb);
  line.bindings.insert(line.bindings.begin(), "VOCABULARY = None");
  if (needs_dropout_rate(line)) {
    line.bindings.emplace_back("DROPOUT_RATE = 0.0");
    if (mpi::Session::rank_of_process().value_or(0) == 0)
      fmt::print(stderr,
                 "DROPOUT_RATE is not bound: a step without dropout; bind it for another\n");
  }
  auto session =
      std::make_unique<GinSession>(line, EntryPoints{}, GinSession::Options{.macros = {"MODEL"}});
  return session;
}

LayoutCase gin_case(const ModelCase& bench, GinSession& session, const std::string& binding) {
  LayoutCase what;
  what.make = [&session, binding, lora = bench.lora.lora(), fp8 = bench.fp8,
               mutex = std::make_shared<std::mutex>()] {
    const std::lock_guard lock(*mutex);
    const auto configured =
        gin::as<std::shared_ptr<ConfiguredModel>>(session.config().evaluate(binding), {binding});
    if (lora) configured->lora = lora;
    configured->prepare_to_train();
    use_fp8(*configured->model, {.enabled = fp8});
    return ModelAndOptimizer{configured->model, configured->optimizer_to_train()};
  };
  const ModelAndOptimizer example = what.make();
  const bool encodes = !example.model->spec().decoder_only();
  what.batch = [bench, encodes, vocabulary = example.model->vocab_size()](int64_t) {
    HostArrays batch = random_batch(bench, vocabulary);
    if (!encodes) batch.erase("encoder_input_tokens");
    return batch;
  };
  what.tokens = bench.batch * (bench.targets + (encodes ? bench.inputs : 0));
  for (const ParamInfo& info : example.model->parameters().all())
    for (const Axis& axis : info.spec.axes)
      if (axis.name == axis::kExpert) what.experts = std::gcd(what.experts, axis.size);
  return what;
}

std::unique_ptr<GinSession> add_remat(LayoutCase& what, const ModelCase& bench,
                                      gin::CommandLine line) {
  line.bindings.push_back("network.T5Config.remat_policy = 'full'");
  auto session = model_session("plan", std::move(line));
  what.make_remat = gin_case(bench, *session).make;
  return session;
}

}  // namespace quintet
