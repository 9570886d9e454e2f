#include "apps/model/replicated_parameters.h"

#include "runtime/execution/reshard.h"

namespace quintet {
namespace {

using Cut = std::vector<std::pair<Tensor, Tensor>>;

Tensor replicated(const Tensor& x) {
  return x ? moved(x, Layout::replicated(x.spec().axes.size())) : Tensor();
}

Cut gather(Parameters& parameters) {
  Cut cut;
  if (ExecutionContext::current().sharding == nullptr) return cut;
  for (ParamInfo& info : parameters.all()) {
    cut.emplace_back(info.value, info.compute);
    info.value = replicated(info.value);
    info.compute = replicated(info.compute);
  }
  return cut;
}

}  // namespace

ReplicatedParameters::ReplicatedParameters(Parameters& parameters)
    : parameters_(parameters), cut_(gather(parameters)), nothing_cut_(one_rank_) {}

ReplicatedParameters::~ReplicatedParameters() {
  for (size_t i = 0; i < cut_.size(); ++i) {
    parameters_.all()[i].value = std::move(cut_[i].first);
    parameters_.all()[i].compute = std::move(cut_[i].second);
  }
}

}  // namespace quintet
