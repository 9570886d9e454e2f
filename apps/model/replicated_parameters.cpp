#include "apps/model/replicated_parameters.h"

#include "runtime/execution/reshard.h"

namespace quintet {
namespace {

using Shards = std::vector<std::array<Tensor, 3>>;

Shards gather(Parameters& parameters) {
  Shards shards;
  if (ExecutionContext::current().sharding == nullptr) return shards;
  for (ParamInfo& info : parameters.all()) {
    shards.push_back({info.value, info.compute, info.scales});
    info.value = replicated(info.value);
    info.compute = replicated(info.compute);
    info.scales = replicated(info.scales);
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
    ParamInfo& info = parameters_.all()[i];
    info.value = std::move(shards_[i][0]);
    info.compute = std::move(shards_[i][1]);
    info.scales = std::move(shards_[i][2]);
  }
}

}  // namespace quintet
