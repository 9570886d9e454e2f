#include "apps/model/whole_parameters.h"

#include "runtime/execution/reshard.h"

namespace quintet {
namespace {

using Cut = std::vector<std::pair<Tensor, Tensor>>;

Tensor whole(const Tensor& x) {
  return x ? moved(x, Layout::whole(x.spec().axes.size())) : Tensor();
}

Cut gather(Parameters& parameters) {
  Cut cut;
  if (ExecutionContext::current().sharding == nullptr) return cut;
  for (ParamInfo& info : parameters.all()) {
    cut.emplace_back(info.value, info.compute);
    info.value = whole(info.value);
    info.compute = whole(info.compute);
  }
  return cut;
}

}  // namespace

WholeParameters::WholeParameters(Parameters& parameters)
    : parameters_(parameters), cut_(gather(parameters)), nothing_cut_(one_rank_) {}

WholeParameters::~WholeParameters() {
  for (size_t i = 0; i < cut_.size(); ++i) {
    parameters_.all()[i].value = std::move(cut_[i].first);
    parameters_.all()[i].compute = std::move(cut_[i].second);
  }
}

}  // namespace quintet
