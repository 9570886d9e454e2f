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
}
StateSlices to_slices(Trainer& trainer, const std::string& dtype) {
  StateSlices out;
  const std::vector<StateArray> arrays = trainer.state();
  out.copies.reserve(arrays.size() + 1);  // slices point into them
  for (const StateArray& array : arrays) {
    const View& view = array.view;
    out.slices.push_back({array.name, view.dtype, global_shape_of(view), origin_of(view),
                          shape_of(view), static_cast<const std::byte*>(view.pointer)});
    out.mesh_axes.push_back(array.mesh_axes);
    const bool is_rounded = dtype == "bfloat16" && array.name.starts_with(kParameterPrefix);
    if (is_rounded || !array.device->is_cpu()) {
      HostArray copy = host_copy(array);
      out.copies.push_back(is_rounded ? rounded(std::move(copy), DType::bf16) : std::move(copy));
      out.slices.back().dtype = out.copies.back().dtype;
      out.slices.back().data = out.copies.back().bytes.data();
    }
  }
  out.copies.emplace_back(DType::i32, std::vector<int64_t>{});
  out.copies.back().as<int32_t>()[0] = static_cast<int32_t>(trainer.step());
  out.slices.push_back(whole_slice(kStep, out.copies.back()));
  out.mesh_axes.emplace_back();
  return out;
}

void drop_replicas(StateSlices& state, const Mesh& mesh) {
  StateSlices own{.slices = {}, .mesh_axes = {}, .copies = std::move(state.copies)};
  for (size_t i = 0; i < state.slices.size(); ++i) {
    const Group& holders = mesh.replicas(state.mesh_axes[i]);
    if (static_cast<int>(i % static_cast<size_t>(holders.size())) != holders.rank()) continue;
    own.slices.push_back(std::move(state.slices[i]));
    own.mesh_axes.push_back(std::move(state.mesh_axes[i]));
  }
  state = std::move(own);
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
      found.missing.push_back(array.name);
      continue;
    }
    const std::string problem = read_array(checkpoint, array.name, array.view, *array.device);
    if (!problem.empty()) problems.push_back(problem);
  }
  for (const auto& [name, tensor] : checkpoint.tensors())
    if (!known.contains(name)) found.extra.push_back(name);
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
