#include "models/lora.h"

#include <algorithm>
#include <map>

#include "runtime/optim/path_pattern.h"

namespace quintet {
namespace {

constexpr const char* kRank = "lora_rank";  // a logical axis that no rule shards

/// The matrices that layers call by dense(); those of experts are three-dimensional.
bool can_adapt(const ParamInfo& info) {
  return info.spec.axes.size() == 2 && info.name.ends_with("/kernel") &&
         info.name.find("/layers_") != std::string::npos;
}

DType base_dtype(const std::string& name) {
  const std::map<std::string, DType> known{
      {"float32", DType::f32}, {"bfloat16", DType::bf16}, {"int8", DType::i8}, {"fp8", DType::u8}};
  const auto found = known.find(name);
  QT_CHECK(found != known.end(),
           "lora.LoraConfig.base_dtype: expected 'float32', 'bfloat16', 'int8' or 'fp8', found "
           "'{}'",
           name);
  return found->second;
}

void check(const LoraConfig& config) {
  QT_CHECK(config.rank > 0, "lora.LoraConfig.rank = {}: expected 1 or more", config.rank);
  QT_CHECK(config.alpha > 0, "lora.LoraConfig.alpha = {}: expected above 0", config.alpha);
  QT_CHECK(config.dropout_rate >= 0 && config.dropout_rate < 1,
           "lora.LoraConfig.dropout_rate = {}: expected 0 <= rate < 1", config.dropout_rate);
  QT_CHECK(!config.targets.empty(), "lora.LoraConfig.targets: is empty; name kernels to adapt");
}

}  // namespace

void add_adapters(BaseModel& model, const LoraConfig& config) {
  check(config);
  const DType frozen_dtype = base_dtype(config.base_dtype);
  QT_CHECK(!model.spec().own_network,
           "lora.LoraConfig: this model has a network of its own, whose products know no adapters");
  std::vector<ParamInfo*> kernels;
  std::string example;
  for (ParamInfo& info : model.parameters().all()) {
    info.frozen = true;
    if (!can_adapt(info)) continue;
    info.spec.dtype = frozen_dtype;
    kernels.push_back(&info);
    example = "/" + info.name;
  }
  std::vector<bool> adapts(kernels.size());
  for (const std::string& target : config.targets) {
    const PathPattern pattern(target);
    bool is_found = false;
    for (size_t i = 0; i < kernels.size(); ++i)
      if (pattern.found_in("/" + kernels[i]->name)) adapts[i] = is_found = true;
    QT_CHECK(is_found,
             "lora.LoraConfig.targets: '{}' is found in no dense kernel of a layer, such as {}",
             target, example);
  }
  const Initializer uniform = variance_scaling(
      {.scale = 1.0 / 3, .mode = FanMode::kIn, .distribution = Distribution::kUniform});
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (!adapts[i]) continue;
    const Axes& axes = kernels[i]->spec.axes;
    QT_CHECK(config.rank <= std::min(axes[0].size, axes[1].size),
             "lora.LoraConfig.rank = {}: {} is {} x {}; expected no more than the smaller one",
             config.rank, kernels[i]->name, axes[0].size, axes[1].size);
    const Axis rank{kRank, config.rank};
    const std::string place =
        kernels[i]->name.substr(0, kernels[i]->name.size() - std::string_view("kernel").size());
    Parameters& all = model.parameters();
    kernels[i]->low_rank = {&all.declare(place + "lora_a", {axes[0], rank}, uniform),
                            &all.declare(place + "lora_b", {rank, axes[1]}, zeros_initializer()),
                            config.alpha / static_cast<double>(config.rank), config.dropout_rate};
  }
}

}  // namespace quintet
