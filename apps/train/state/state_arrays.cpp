#include "apps/train/state/state_arrays.h"

#include <algorithm>
#include <map>
#include <set>

#include "apps/model/checkpoint_parameters.h"
#include "apps/model/quantized_model.h"
#include "checkpoint/arrays/half.h"

namespace quintet {

namespace {
constexpr const char* kStep = "state/step";
}  // namespace

bool is_saved_rounded(const std::string& name, const std::string& dtype) {
  return dtype == "bfloat16" && name.starts_with(kParameterPrefix);
}

StateSlices to_slices(Trainer& trainer, const std::string& dtype) {
  StateSlices out;
  const std::vector<StateArray> arrays = trainer.state();
  out.copies.reserve(arrays.size() + 1);  // slices point into them
  for (const StateArray& array : arrays) {
    const View& view = array.view;
    TensorSlice slice{array.name,      view.dtype,     global_shape_of(view),
                      origin_of(view), shape_of(view), static_cast<const std::byte*>(view.pointer)};
    if (array.device->is_cpu() && is_saved_rounded(array.name, dtype)) {
      out.copies.push_back(rounded(host_copy(array), DType::bf16));
      slice.dtype = DType::bf16;
      slice.data = out.copies.back().bytes.data();
    }
    out.slices.push_back(std::move(slice));
    out.mesh_axes.push_back(array.mesh_axes);
    out.devices.push_back(array.device);
  }
  out.copies.emplace_back(DType::i32, std::vector<int64_t>{});
  out.copies.back().as<int32_t>()[0] = static_cast<int32_t>(trainer.step());
  out.slices.push_back(whole_slice(kStep, out.copies.back()));
  out.mesh_axes.emplace_back();
  out.devices.push_back(&Device::cpu());
  return out;
}

void drop_replicas(StateSlices& state, const Mesh& mesh) {
  StateSlices own{.slices = {}, .mesh_axes = {}, .devices = {}, .copies = std::move(state.copies)};
  for (size_t i = 0; i < state.slices.size(); ++i) {
    const Group& holders = mesh.replicas(state.mesh_axes[i]);
    if (static_cast<int>(i % static_cast<size_t>(holders.size())) != holders.rank()) continue;
    own.slices.push_back(std::move(state.slices[i]));
    own.mesh_axes.push_back(std::move(state.mesh_axes[i]));
    own.devices.push_back(state.devices[i]);
  }
  state = std::move(own);
}

NotFinite count_not_finite(Trainer& trainer) {
  const StateSlices state = to_slices(trainer, "float32");
  const std::vector<StateArray> arrays = trainer.state();
  std::vector<TensorSlice> on_host;
  NotFinite found;
  for (size_t i = 0; i < state.slices.size(); ++i) {
    if (state.devices[i]->is_cpu()) {
      on_host.push_back(state.slices[i]);
      continue;
    }
    const HostArray copy = host_copy(arrays[i]);
    if (const int64_t count = count_not_finite(copy.dtype, copy.bytes))
      found[arrays[i].name] = count;
  }
  found.merge(count_not_finite(on_host));
  return found;
}

NotFinite count_not_finite_frozen(const Parameters& parameters) {
  NotFinite found;
  for (const ParamInfo& info : parameters.all()) {
    if (!info.frozen || !is_floating(info.spec.dtype)) continue;
    const HostArray copy = host_copy({info.name, {}, info.value.local(), &info.value.device(), {}});
    if (const int64_t count = count_not_finite(copy.dtype, copy.bytes))
      found[parameter_key(info.name)] = count;
  }
  return found;
}

ArrayShapes shapes_of(Trainer& trainer) {
  ArrayShapes shapes;
  for (const StateArray& array : trainer.state()) shapes[array.name] = global_shape_of(array.view);
  shapes[kStep];
  return shapes;
}

Differences load_arrays(const CheckpointReader& checkpoint, Trainer& trainer,
                        const AllowedDifferences& allowed) {
  check_not_quantized(checkpoint);
  Differences found;
  std::vector<std::string> problems;
  std::set<std::string> known = {kStep};
  if (!checkpoint.tensors().contains(kStep) && !allowed.no_optimizer)
    found.missing.push_back(kStep);
  std::vector<StateArray> arrays = trainer.state();
  // Those that are stored together one after the other, in the trainer's order else.
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < arrays.size(); ++i)
    first.try_emplace(checkpoint.storage_key(arrays[i].name), i);
  std::ranges::stable_sort(
      arrays, {}, [&](const auto& array) { return first.at(checkpoint.storage_key(array.name)); });
  for (const StateArray& array : arrays) {
    known.insert(array.name);
    if (allowed.no_optimizer && array.name.starts_with("state/")) continue;
    if (!checkpoint.tensors().contains(array.name)) {
      if (array.name.starts_with(kFp8Prefix)) continue;  // histories begin anew
      found.missing.push_back(array.name);
      continue;
    }
    const std::string problem = read_array(checkpoint, array.name, array.view, *array.device);
    if (!problem.empty()) problems.push_back(problem);
  }
  for (const auto& [name, tensor] : checkpoint.tensors())
    if (!known.contains(name) && !name.starts_with(kFp8Prefix)) found.extra.push_back(name);
  if (!allowed.missing)
    for (const std::string& name : found.missing)
      problems.push_back(fmt::format("{}: not in the checkpoint", name));
  if (!allowed.extra)
    for (const std::string& name : found.extra)
      problems.push_back(fmt::format("{}: in the checkpoint, not in the model", name));
  if (!problems.empty() && !allowed.advice.empty()) problems.push_back(allowed.advice);
  fail_if_any(problems, checkpoint.folder().string(), allowed.shown);
  return found;
}

}  // namespace quintet
