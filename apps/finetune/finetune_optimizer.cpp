#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "apps/finetune/finetune_gin.h"
#include "runtime/base/check.h"
#include "runtime/optim/path_pattern.h"

namespace quintet {
namespace {

/// Parameters that are treated alike.
struct ParameterGroup {
  std::string scope, pattern;  // what is found in "/" + name
  double rate = 1;             // times the learning rate
  bool decays = true;
};

constexpr const char* kNoDecay = R"((?:/scale|/bias|/rel_embedding)$)";

std::vector<std::string> paths_of(const FinetuneModel& model) {
  std::vector<std::string> paths;
  for (const ParamInfo* parameter : model.trained.model->model->parameters().trained())
    paths.push_back("/" + parameter->name);
  return paths;
}

bool any_found(const std::string& pattern, const std::vector<std::string>& paths) {
  const PathPattern expression(pattern);
  return std::ranges::any_of(paths,
                             [&](const std::string& path) { return expression.found_in(path); });
}

/// What keeps frozen parameters out of a group.
std::string not_frozen(const FinetuneFlags& flags, const std::vector<std::string>& paths) {
  if (flags.freeze.empty()) return "^";
  for (const std::string& pattern : flags.freeze)
    QT_CHECK(
        any_found(pattern, paths),
        "--freeze={}: found in no parameter; 'quintet inspect' of a checkpoint lists them, as {}",
        pattern, paths.front());
  return fmt::format("^(?!.*(?:{}))", fmt::join(flags.freeze, "|"));
}

/// Expressions for the layers of both stacks with the factors of their learning rates.
std::vector<std::pair<std::string, double>> layers_of(const FinetuneFlags& flags,
                                                      const std::vector<std::string>& paths) {
  if (flags.layer_decay == 1) return {{"", 1.0}};
  std::vector<std::pair<std::string, double>> layers;
  for (const std::string stack : {"encoder", "decoder"}) {
    const auto layer = [&](int64_t i) { return fmt::format("/{}/layers_{}/", stack, i); };
    int64_t count = 0;
    while (any_found(layer(count), paths)) ++count;
    for (int64_t i = 0; i < count; ++i)
      layers.emplace_back(".*" + layer(i),
                          std::pow(flags.layer_decay, static_cast<double>(count - 1 - i)));
    // What lies below the first layer, and above the last.
    const std::string outside = fmt::format("(?!.*/layers_).*/{}/", stack);
    layers.emplace_back(outside + ".*embed",
                        std::pow(flags.layer_decay, static_cast<double>(count)));
    layers.emplace_back(fmt::format("(?!.*embed){}", outside), 1.0);
  }
  int64_t deepest = 0;
  while (any_found(fmt::format("/layers_{}/", deepest), paths)) ++deepest;
  layers.emplace_back("(?!/encoder/|/decoder/)",
                      std::pow(flags.layer_decay, static_cast<double>(deepest)));
  return layers;
}

/// One group for all, or with --layer_decay one or two a layer: a mask of decay that selects nothing is an error.
std::vector<ParameterGroup> groups_of(const FinetuneFlags& flags,
                                      const std::vector<std::string>& paths) {
  std::vector<ParameterGroup> groups;
  const std::string trained = not_frozen(flags, paths);
  const bool splits = flags.weight_decay > 0 && flags.layer_decay != 1;
  for (const auto& [layer, rate] : layers_of(flags, paths))
    for (const bool decays : {true, false}) {
      if (!splits && !decays) continue;
      const std::string kind =
          !splits ? "" : fmt::format("(?{}.*{})", decays ? "!" : "=", kNoDecay);
      const std::string pattern = trained + kind + layer;
      if (any_found(pattern, paths))
        groups.push_back({fmt::format("group_{}", groups.size()), pattern, rate, decays});
    }
  QT_CHECK(!groups.empty(), "--freeze={}: leaves no parameter to train",
           fmt::join(flags.freeze, ", --freeze="));
  return groups;
}

/// AdamW of all groups; gradients are clipped by the norm of them all.
std::string adamw_text(const FinetuneFlags& flags, const std::vector<ParameterGroup>& groups,
                       const std::vector<std::string>& paths) {
  const std::string decaying = fmt::format("{}(?!.*{})", not_frozen(flags, paths), kNoDecay);
  const bool masks = groups.size() == 1 && flags.weight_decay > 0 && any_found(decaying, paths);
  std::string text, transforms, labels, last;
  for (const ParameterGroup& group : groups) {
    const double decay = group.decays && (groups.size() > 1 || masks) ? flags.weight_decay : 0.0;
    text += fmt::format(R"({0}/optax.adamw:
  learning_rate = @optax.warmup_cosine_decay_schedule()
  weight_decay = {1}
)",
                        group.scope, decay);
    if (masks) text += fmt::format("  mask = {}\n", gin_repr(decaying));
    last = fmt::format("@{}/optax.adamw()", group.scope);
    if (group.rate != 1) {
      text += fmt::format(R"({0}/optax.scale.step_size = {1}
{0}/optax.chain.transformations = [{2}, @{0}/optax.scale()]
)",
                          group.scope, group.rate, last);
      last = fmt::format("@{}/optax.chain()", group.scope);
    }
    transforms += fmt::format("\n    '{}': {},", group.scope, last);
    labels += fmt::format("\n    {}: '{}',", gin_repr(group.pattern), group.scope);
  }
  if (groups.size() > 1) {
    text += fmt::format("optax.multi_transform.transforms = {{{}}}\n", transforms);
    text += fmt::format("optax.multi_transform.param_labels = {{{}}}\n", labels);
    last = "@optax.multi_transform()";
  }
  std::string clip;
  if (flags.max_grad_norm > 0) {
    text += fmt::format("optax.clip_by_global_norm.max_norm = {}\n", flags.max_grad_norm);
    clip = "@optax.clip_by_global_norm(), ";
  }
  return text + fmt::format("optimizers.chain.transformations = [{}{}]\n", clip, last);
}

constexpr const char* kAdafactor = R"(adafactor.Adafactor:
  decay_rate = 0.8
  step_offset = 0
  logical_factor_rules = @adafactor.standard_logical_factor_rules()
)";

}  // namespace

std::string finetune_optimizer_gin(const FinetuneFlags& flags, const FinetuneModel& model,
                                   const std::string& model_class) {
  const std::vector<std::string> paths = paths_of(model);
  const std::vector<ParameterGroup> groups = groups_of(flags, paths);
  const std::string text = flags.is_adamw() ? adamw_text(flags, groups, paths) : kAdafactor;
  const char* optimizer = flags.is_adamw() ? "@optimizers.chain()" : "@adafactor.Adafactor()";
  if (flags.freeze.empty())
    return text + fmt::format("{}.optimizer_def = {}\n", model_class, optimizer);
  return text + fmt::format(R"(traverse_util.ModelParamTraversal.filter_fn = {}
{}.optimizer_def = @optimizers.MultiOptimizer()
optimizers.MultiOptimizer.traversals_and_optimizers = [
    (@traverse_util.ModelParamTraversal(), {})]
)",
                            gin_repr(not_frozen(flags, paths)), model_class, optimizer);
}

}  // namespace quintet
