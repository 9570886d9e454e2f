#include "apps/model/replicated_parameters.h"

#include "runtime/execution/reshard.h"

namespace quintet {
namespace {

using Shards = std::vector<std::pair<Tensor, Tensor>>;

Shards gather(Parameters& parameters) {
  Shards shards;
  if (ExecutionContext::current().sharding == nullptr) return shards;
  for (ParamInfo& info : parameters.all()) {
    shards.emplace_back(info.value, info.compute);
    info.value = replicated(info.value);
    info.compute = replicated(info.compute);
  }
  return shards;
}

}  // namespace

Tensor replicated(const Tensor& x) {
  return x ? resharded(x, Layout::replicated(x.spec().axes.size())) : Tensor();
}

ReplicatedParameters::ReplicatedParameters(Parameters& parameters)
    : parameters_(parameters), shards_(gather(parameters)), use_one_rank_(one_rank_) {}

ReplicatedParameters::~ReplicatedParameters() {
  for (size_t i = 0; i < shards_.size(); ++i) {
    parameters_.all()[i].value = std::move(shards_[i].first);
    parameters_.all()[i].compute = std::move(shards_[i].second);
  }
}

}  // namespace quintet
