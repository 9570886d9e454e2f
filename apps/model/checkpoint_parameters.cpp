#include "apps/model/checkpoint_parameters.h"

#include <algorithm>
#include <sstream>

#include "apps/model/quantized_model.h"
#include "apps/process/ranks.h"
#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/arrays/half.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/open/open_checkpoint.h"
#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "runtime/base/threefry.h"

namespace quintet {

std::vector<int64_t> shape_of(const View& view) {
  return {view.sizes.begin(), view.sizes.begin() + view.rank};
}

int64_t bytes_of(const View& view) { return view.elements() * size_of(view.dtype); }

std::vector<int64_t> global_shape_of(const View& view) {
  return {view.global.begin(), view.global.begin() + view.rank};
}

std::vector<int64_t> origin_of(const View& view) {
  return {view.origin.begin(), view.origin.begin() + view.rank};
}

std::string read_array(const CheckpointReader& from, const std::string& name, const View& to,
                       Device& device) {
  const StoredTensor& tensor = from.tensors().at(name);
  if (tensor.shape != global_shape_of(to))
    return fmt::format("{}: shape {} in the checkpoint, {} in the model", name,
                       shape_text(tensor.shape), shape_text(global_shape_of(to)));
  const TensorRegion region{name, origin_of(to), shape_of(to)};
  if (tensor.dtype == to.dtype && device.is_cpu()) {
    from.read(region, static_cast<std::byte*>(to.pointer));
    return "";
  }
  HostArray part(tensor.dtype, region.sizes);
  from.read(region, part.bytes.data());
  if ((to.dtype == DType::f32 || to.dtype == DType::bf16) && is_floating(part.dtype) &&
      part.dtype != DType::f64)
    part = rounded(as_float32(std::move(part)), to.dtype);
  if (part.dtype != to.dtype)
    return fmt::format("{}: {} in the checkpoint, {} in the model", name, name_of(tensor.dtype),
                       name_of(to.dtype));
  device.copy_in(to.pointer, part.bytes.data(), bytes_of(to));
  return "";
}

namespace {

/// A frozen matrix in 8 bits. A column's scale is of all its rows, on whichever ranks they lie, so that every mesh has the same weights.
std::string read_quantized(const CheckpointReader& from, const std::string& name,
                           const ParamInfo& to) {
  const View own = to.value.local();
  const StoredTensor& tensor = from.tensors().at(name);
  if (!is_floating(tensor.dtype) || tensor.dtype == DType::f64)
    return fmt::format("{}: {} in the checkpoint: expected float32, bfloat16 or float16", name,
                       name_of(tensor.dtype));
  const int64_t rows = own.global[0], columns = own.size(1), first = own.origin[0] * columns;
  HostArray part(tensor.dtype, {rows, columns});
  from.read({name, {0, own.origin[1]}, part.shape}, part.bytes.data());
  part = as_float32(std::move(part));
  if (const int64_t bad = count_not_finite(part.dtype, part.bytes))
    return fmt::format("{}: {} values are not finite", name, bad);
  HostArray values(own.dtype, part.shape), scales(DType::f32, {columns});
  const auto quantize = [&]<typename T>(T* out) {
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < columns; ++c)
      scales.as<float>()[static_cast<size_t>(c)] =
          quantize_column(part.as<float>().data() + c, rows, columns, out + c);
  };
  if (own.dtype == DType::i8)
    quantize(reinterpret_cast<int8_t*>(values.bytes.data()));
  else
    quantize(reinterpret_cast<float8*>(values.bytes.data()));
  Device& device = to.value.device();
  device.copy_in(own.pointer, values.bytes.data() + first, bytes_of(own));
  device.copy_in(to.scales.raw(), scales.bytes.data(), to.scales.bytes());
  return "";
}

}  // namespace

void fail_if_any(const std::vector<std::string>& problems, const std::string& where, size_t shown) {
  if (problems.empty()) return;
  shown = std::min(problems.size(), shown);
  fail(ExitCode::kData, "{}: does not fit this model:\n  {}{}", where,
       fmt::join(problems.begin(), problems.begin() + static_cast<std::ptrdiff_t>(shown), "\n  "),
       shown < problems.size() ? fmt::format("\n  and {} more", problems.size() - shown) : "");
}

void check_parameters(const CheckpointReader& checkpoint, const Parameters& parameters) {
  std::vector<std::string> problems;
  for (const ParamInfo* info : parameters.of_base()) {
    std::vector<int64_t> shape;
    for (const Axis& axis : info->spec.axes) shape.push_back(axis.size);
    const auto found = checkpoint.tensors().find(parameter_key(info->name));
    if (found == checkpoint.tensors().end())
      problems.push_back(fmt::format("{}: not in the checkpoint", info->name));
    else if (found->second.shape != shape)
      problems.push_back(fmt::format("{}: shape {} in the checkpoint, {} in the model", info->name,
                                     shape_text(found->second.shape), shape_text(shape)));
  }
  fail_if_any(problems, checkpoint.folder().string());
}

std::vector<std::string> load_parameters(const CheckpointReader& checkpoint, Parameters& parameters,
                                         std::optional<int64_t> fallback_seed) {
  check_not_quantized(checkpoint);
  std::vector<std::string> missing, problems;
  const std::vector<const ParamInfo*> wanted = parameters.of_base();
  for (const ParamInfo* info : wanted)
    if (!checkpoint.tensors().contains(parameter_key(info->name))) missing.push_back(info->name);
  if (!fallback_seed) check_parameters(checkpoint, parameters);
  if (fallback_seed && !missing.empty())
    parameters.initialize(key_from_seed(*fallback_seed));
  else if (std::any_of(parameters.all().begin(), parameters.all().end(),
                       [](const ParamInfo& info) { return info.value.absent(); }))
    parameters.allocate();
  std::vector<std::pair<std::string, const ParamInfo*>> order;
  for (const ParamInfo* info : wanted)
    order.emplace_back(checkpoint.storage_key(parameter_key(info->name)), info);
  std::sort(order.begin(), order.end());
  for (const auto& [key, info] : order) {
    const std::string name = parameter_key(info->name);
    if (!checkpoint.tensors().contains(name)) continue;
    const std::string problem =
        info->scales ? read_quantized(checkpoint, name, *info)
                     : read_array(checkpoint, name, info->value.local(), info->value.device());
    if (!problem.empty()) problems.push_back(problem);
  }
  parameters.refresh();
  fail_if_any(problems, checkpoint.folder().string());
  return missing;
}

std::vector<std::filesystem::path> checkpoint_folders(const RestoreCheckpointConfig& config) {
  std::vector<std::filesystem::path> folders;
  for (const std::string& path : config.path) {
    const bool is_last = &path == &config.path.back();
    if (config.mode != "specific" && awaits_checkpoints(path) && !(is_last && folders.empty())) {
      fmt::print(stderr, "{}: has no checkpoint and is passed over\n", path);
      continue;
    }
    const std::filesystem::path found = find_checkpoint(path);
    if (config.mode == "all" && found != path) {
      for (const int64_t step : list_checkpoints(path))
        folders.push_back(checkpoint_path(path, step));
    } else {
      folders.push_back(found);
    }
    if (config.mode == "latest") break;  // T5X: of the first folder that has checkpoints
  }
  return folders;
}

std::vector<std::filesystem::path> checkpoint_folders(const RestoreCheckpointConfig& config,
                                                      const Ranks& ranks) {
  std::string lines;
  if (ranks.leads())
    for (const auto& folder : checkpoint_folders(config)) lines += folder.string() + "\n";
  std::istringstream in(ranks.of_leader(lines));
  std::vector<std::filesystem::path> folders;
  for (std::string line; std::getline(in, line);) folders.emplace_back(line);
  return folders;
}

}  // namespace quintet
