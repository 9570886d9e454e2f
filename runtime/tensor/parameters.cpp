#include "runtime/tensor/parameters.h"

#include <functional>
#include <memory>
#include <numeric>

#include "kernels/cpu/convert.h"
#include "kernels/gpu/gpu_kernels.h"
#include "runtime/base/memory/memory_meter.h"
#include "runtime/base/nearest.h"
#include "runtime/mesh/sharding.h"
#include "runtime/tensor/batched.h"

namespace quintet {
namespace {

bool has_copy(const ParamInfo& info) {
  const auto& axes = info.spec.axes;
  return axes.size() >= 2 && axes.back().name != axis::kRelposBuckets &&
         axes.back().name != axis::kUnmodeled;
}

/// A float32 master of what the network reads in another dtype.
bool is_copied(const ParamInfo& info) {
  return has_copy(info) && info.value && info.spec.dtype == DType::f32;
}

/// A collective takes longer to begin than this many bytes take to travel.
constexpr int64_t kSmallBytes = 64 << 10;

/// As the rules place a parameter, but a small vector, a norm's scale or a bias, is whole on every rank; gathering it would cost
/// a collective for each use.
Layout layout_for(const Spec& spec) {
  const Sharding* sharding = ExecutionContext::current().sharding;
  const bool is_small =
      spec.axes.size() == 1 && spec.elements() * size_of(spec.dtype) <= kSmallBytes;
  return sharding == nullptr || is_small ? Layout::replicated(spec.axes.size())
                                         : sharding->place(spec);
}

/// Of this rank's part of a parameter; refuses what does not divide.
int64_t elements_here(const std::string& name, const Spec& spec, const Layout& layout) {
  if (!layout.sharded()) return spec.elements();
  const Block block = ExecutionContext::current().sharding->block("parameter " + name, spec, layout,
                                                                  full_slice(spec));
  return std::accumulate(block.sizes.begin(), block.sizes.end(), int64_t{1}, std::multiplies<>());
}

/// Memory for this rank's part of a parameter, `memory` if it is given.
Tensor memory_for(const std::string& name, const Spec& spec, Buffer memory = nullptr) {
  const Layout layout = layout_for(spec);
  elements_here(name, spec, layout);
  return Tensor(spec, layout, full_slice(spec), std::move(memory));
}

/// Calls body(first, at, count) for every run of elements of a block that lie side by side in the
/// global array: where the run starts there and in the block.
template <class Body>
void for_runs(const Spec& spec, const Block& block, const Body& body) {
  const size_t rank = spec.axes.size();
  int64_t run = 1, count = 1;
  size_t inner = rank;  // dimensions from here on are unsharded
  while (inner > 0 && (inner == rank || block.sizes[inner] == spec.axes[inner].size))
    run *= block.sizes[--inner];
  for (size_t d = 0; d < inner; ++d) count *= block.sizes[d];
  for (int64_t i = 0; i < count; ++i) {
    int64_t first = 0, rest = i, stride = 1;
    for (size_t d = rank; d-- > 0;) {
      const int64_t place = d < inner ? rest % block.sizes[d] : 0;
      if (d < inner) rest /= block.sizes[d];
      first += (block.origin[d] + place) * stride;
      stride *= spec.axes[d].size;
    }
    body(first, i * run, run);
  }
}

/// Of a master in the host's memory, to the device.
void copy_rounded(const Tensor& master, const Tensor& copy) {
  const std::span<const float> values = master.data<float>();
  const auto rounded = std::make_unique_for_overwrite<bfloat16[]>(values.size());
  cpu::convert(values.data(), std::ssize(values), rounded.get());
  copy.device().copy_in(copy.raw(), rounded.get(), copy.bytes());
  copy.device().synchronize();  // `rounded` goes
}

}  // namespace

bool fuses_casts(const ParamInfo& first) {
  return first.fp8 && first.fp8->fused_casts && is_data_parallel();
}

const ParamInfo& Parameters::at(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return *found->second;
  std::vector<std::string> names;
  for (const auto& [known, info] : by_name_) names.push_back(known);
  fail(ExitCode::kUsage, "no parameter '{}'{}", name, did_you_mean(name, names));
}

ParamInfo& Parameters::declare(std::string name, Axes axes, Initializer initializer) {
  QT_ASSERT(!by_name_.contains(name));
  all_.push_back({name, Spec{std::move(axes), DType::f32}, std::move(initializer), {}, {}, {}});
  by_name_[name] = &all_.back();
  return all_.back();
}

/// Memory for what products of a GPU read, of matrices of one size that follow each other, as attention's query, key and
/// value: side by side, so that one product multiplies by all of them (kernels/matmul). nullptr: for any other. What follows
/// each other by chance, as an MLP's two gates, shares a block, too, which lives as long as one of them.
std::vector<Buffer> Parameters::side_by_side(DType dtype, bool (*wanted)(const ParamInfo&)) const {
  std::vector<Buffer> memory(all_.size());
  Device& device = Device::current();
  if (!batches_products(device)) return memory;
  for (size_t i = 0, end = 1; i < all_.size(); i = end) {
    const Spec& spec = all_[i].spec;
    const Layout layout = layout_for(spec);
    for (end = i + 1; end < all_.size() && spec.axes.size() == 2 && all_[end].spec == spec &&
                      wanted(all_[i]) && wanted(all_[end]) && is_multiplied_as_placed(layout);)
      ++end;
    if (end - i > 1)
      std::ranges::move(device.memory().allocate_side_by_side(
                            elements_here(all_[i].name, spec, layout) * size_of(dtype), end - i),
                        memory.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return memory;
}

Tensor Parameters::memory_for_master(const ParamInfo& info, Buffer memory) const {
  Device& device = Device::current();
  if (!masters_on_host_ || info.frozen || !has_copy(info) || compute_dtype_ == DType::f32)
    return memory_for(info.name, info.spec, std::move(memory));
  const MemoryMeter::Use unmetered(nullptr);  // a meter counts the device's
  const Device::Use on_cpu(device.memory_is_real() ? Device::cpu() : device);
  return memory_for(info.name, info.spec);
}

void Parameters::keep_masters_on_host() {
  if (masters_on_host_) return;
  masters_on_host_ = true;
  Device& device = Device::current();
  for (ParamInfo& info : all_) {
    if (!info.compute || info.frozen) continue;
    const Tensor on_device = info.value;
    info.value = memory_for_master(info);
    info.value.set_needs_grad(true);
    if (device.memory_is_real())
      device.copy_out(info.value.raw(), on_device.raw(), on_device.bytes());
  }
  device.memory().release_cached();  // blocks of a size that none of a step has
}

void Parameters::allocate() {
  count_write();
  const MemoryScope scope(MemoryKind::kParameters);
  std::vector<Buffer> memory(all_.size());
  if (compute_dtype_ == DType::f32)
    memory = side_by_side(DType::f32,
                          [](const ParamInfo& info) { return info.spec.dtype == DType::f32; });
  for (size_t i = 0; i < all_.size(); ++i) {
    ParamInfo& info = all_[i];
    info.value = memory_for_master(info, std::move(memory[i]));
    info.value.set_needs_grad(!info.frozen);
    if (size_of(info.spec.dtype) > 1) continue;
    const Spec columns{{info.spec.axes.back()}, DType::f32};
    info.scales = Tensor(columns, {{info.value.layout().dims.back()}, {}}, full_slice(columns));
  }
}

void Parameters::initialize(Key root) {
  allocate();
  for (ParamInfo& info : all_) {
    if (info.frozen) {  // read from a checkpoint; a step that is only measured has zeros
      for (const Tensor* tensor : {&info.value, &info.scales})
        if (*tensor) tensor->device().fill(tensor->raw(), 0, tensor->bytes());
      continue;
    }
    HostArray values(DType::f32, info.value.block().sizes);
    const Key key = key_of_parameter(root, info.name);
    const std::vector<int64_t> shape = full_slice(info.spec).sizes;
    for_runs(info.spec, info.value.block(), [&](int64_t first, int64_t at, int64_t count) {
      info.initializer.block(
          key, shape, static_cast<uint64_t>(first),
          values.as<float>().subspan(static_cast<size_t>(at), static_cast<size_t>(count)));
    });
    info.value.set(values);
  }
  refresh();
}

void Parameters::refresh() {
  count_write();
  if (compute_dtype_ == DType::f32) return;
  const MemoryScope scope(MemoryKind::kParameters);
  Device& device = Device::current();
  std::vector<View> from, to;
  auto memory = side_by_side(compute_dtype_, [](const ParamInfo& info) {
    return is_copied(info) && info.compute.absent();
  });
  for (size_t i = 0; i < all_.size(); ++i) {
    ParamInfo& info = all_[i];
    if (!is_copied(info)) continue;
    if (!info.compute) {
      const Spec spec{info.spec.axes, compute_dtype_};
      info.compute = memory_for(info.name, spec, std::move(memory[i]));
      info.compute.set_needs_grad(!info.frozen);
    }
    if (info.value.device().is_cpu() && !device.is_cpu()) {
      copy_rounded(info.value, info.compute);
      continue;
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
    } else if (found->second.shape != full_slice(info.spec).sizes ||
               found->second.dtype != info.spec.dtype) {
      problems += fmt::format("\n  {}: expected {}, found [{}] {}", info.name, to_string(info.spec),
                              fmt::join(found->second.shape, ", "), name_of(found->second.dtype));
    }
  }
  QT_CHECK_AS(ExitCode::kData, problems.empty(), "parameters do not fit the model:{}", problems);
  allocate();
  for (ParamInfo& info : all_) {
    HostArray part(DType::f32, info.value.block().sizes);
    const auto from = values.at(info.name).as<float>();
    for_runs(info.spec, info.value.block(), [&](int64_t first, int64_t at, int64_t count) {
      std::copy_n(from.begin() + first, count, part.as<float>().begin() + at);
    });
    info.value.set(part);
  }
  refresh();
}

std::vector<const ParamInfo*> Parameters::trained() const {
  std::vector<const ParamInfo*> trained;
  for (const ParamInfo& info : all_)
    if (!info.frozen) trained.push_back(&info);
  return trained;
}

std::vector<const ParamInfo*> Parameters::of_base() const {
  const bool adapted = trained().size() < all_.size();
  std::vector<const ParamInfo*> base;
  for (const ParamInfo& info : all_)
    if (info.frozen || !adapted) base.push_back(&info);
  return base;
}

int64_t Parameters::elements() const {
  int64_t total = 0;
  for (const ParamInfo& info : all_) total += info.spec.elements();
  return total;
}

}  // namespace quintet
