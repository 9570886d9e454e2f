#include "runtime/parameters.h"

#include "kernels/gpu_kernels.h"
#include "runtime/base/nearest.h"

namespace quintet {
namespace {

bool has_copy(const ParamInfo& info) {
  return info.spec.axes.size() >= 2 && info.spec.axes.back().name != axis::kRelposBuckets;
}

}  // namespace

const ParamInfo& Parameters::at(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return *found->second;
  std::vector<std::string> names;
  for (const auto& [known, info] : by_name_) names.push_back(known);
  fail(ExitCode::kUsage, "no parameter '{}'{}", name, did_you_mean(name, names));
}

ParamInfo& Parameters::declare(std::string name, Axes axes, Initializer initializer) {
  QT_ASSERT(!by_name_.contains(name));
  all_.push_back({name, Spec{std::move(axes), DType::f32}, std::move(initializer), {}, {}});
  by_name_[name] = &all_.back();
  return all_.back();
}

void Parameters::initialize(Key root) {
  const MemoryScope scope(MemoryKind::kParameters);
  for (ParamInfo& info : all_) {
    HostArray values(DType::f32, whole(info.spec).sizes);
    info.initializer(key_of_parameter(root, info.name), values.shape, values.as<float>());
    info.value = Tensor(info.spec);
    info.value.set_needs_grad(true).set(values);
  }
  refresh();
}

void Parameters::refresh() {
  if (compute_dtype_ == DType::f32) return;
  const MemoryScope scope(MemoryKind::kParameters);
  Device& device = Device::current();
  std::vector<View> from, to;
  for (ParamInfo& info : all_) {
    if (!has_copy(info)) continue;
    if (!info.compute) {
      Spec spec = info.spec;
      spec.dtype = compute_dtype_;
      info.compute = Tensor(std::move(spec));
      info.compute.set_needs_grad(true);
    }
    from.push_back(info.value.local());
    to.push_back(info.compute.local());
  }
  device.kernels().cast(from, to, device.stream());
}

void Parameters::load(const HostArrays& values) {
  std::string problems;
  for (const auto& [name, array] : values)
    if (!by_name_.contains(name)) problems += fmt::format("\n  {}: not in the model", name);
  for (const ParamInfo& info : all_) {
    const auto found = values.find(info.name);
    if (found == values.end()) {
      problems += fmt::format("\n  {}: missing", info.name);
    } else if (found->second.shape != whole(info.spec).sizes ||
               found->second.dtype != info.spec.dtype) {
      problems += fmt::format("\n  {}: expected {}, found [{}] {}", info.name, to_string(info.spec),
                              fmt::join(found->second.shape, ", "), name_of(found->second.dtype));
    }
  }
  QT_CHECK_AS(ExitCode::kData, problems.empty(), "parameters do not fit the model:{}", problems);
  const MemoryScope scope(MemoryKind::kParameters);
  for (ParamInfo& info : all_) {
    info.value = Tensor(info.spec);
    info.value.set_needs_grad(true).set(values.at(info.name));
  }
  refresh();
}

int64_t Parameters::elements() const {
  int64_t total = 0;
  for (const ParamInfo& info : all_) total += info.spec.elements();
  return total;
}

}  // namespace quintet
