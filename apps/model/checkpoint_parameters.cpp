#include "apps/model/checkpoint_parameters.h"

#include <algorithm>

#include "apps/model/quantized_model.h"
#include "checkpoint/checkpoint.h"

namespace quintet {
namespace {

HostArray as_float32(const HostArray& array, const std::string& name) {
  if (array.dtype == DType::f32) return array;
  HostArray out(DType::f32, array.shape);
  const auto to = out.as<float>();
  if (array.dtype == DType::bf16) {
    const auto from = array.as<bfloat16>();
    for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(from[i]);
  } else {
    fail(ExitCode::kData, "{}: expected float32 or bfloat16, found {}", name, name_of(array.dtype));
  }
  return out;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

std::vector<int64_t> shape_of(const View& view) {
  return {view.sizes.begin(), view.sizes.begin() + view.rank};
}

int64_t bytes_of(const View& view) { return view.elements() * size_of(view.dtype); }

std::vector<int64_t> whole_shape_of(const View& view) {
  return {view.global.begin(), view.global.begin() + view.rank};
}

std::vector<int64_t> origin_of(const View& view) {
  return {view.origin.begin(), view.origin.begin() + view.rank};
}

/// Reads this rank's block of `source` into `to`; a message if it does not fit, else empty.
std::string read_array(const CheckpointReader& from, const std::string& source,
                       const std::string& name, const View& to, Device& device) {
  const ManifestTensor& tensor = from.tensors().at(source);
  if (tensor.shape != whole_shape_of(to))
    return fmt::format("{}: shape {} in the checkpoint, {} in the model", name,
                       shape_text(tensor.shape), shape_text(whole_shape_of(to)));
  const TensorRegion region{source, origin_of(to), shape_of(to)};
  if (tensor.dtype == to.dtype && device.is_cpu()) {
    from.read(region, static_cast<std::byte*>(to.pointer));
    return "";
  }
  HostArray part(tensor.dtype, region.sizes);
  from.read(region, part.bytes.data());
  if (to.dtype == DType::f32) part = as_float32(part, name);
  if (part.dtype != to.dtype)
    return fmt::format("{}: {} in the checkpoint, {} in the model", name, name_of(tensor.dtype),
                       name_of(to.dtype));
  device.copy_in(to.pointer, part.bytes.data(), bytes_of(to));
  return "";
}

void fail_if_any(const std::vector<std::string>& problems, const std::string& where) {
  if (problems.empty()) return;
  constexpr size_t kShown = 3;
  const size_t shown = std::min(problems.size(), kShown);
  fail(ExitCode::kData, "{}: does not fit this model:\n  {}{}", where,
       fmt::join(problems.begin(), problems.begin() + static_cast<std::ptrdiff_t>(shown), "\n  "),
       shown < problems.size() ? fmt::format("\n  and {} more", problems.size() - shown) : "");
}

void load_parameters(const CheckpointReader& checkpoint, Parameters& parameters) {
  check_not_quantized(checkpoint);
  std::vector<std::string> problems;
  if (std::any_of(parameters.all().begin(), parameters.all().end(),
                  [](const ParamInfo& info) { return info.value.absent(); }))
    parameters.allocate();
  for (ParamInfo& info : parameters.all()) {
    const std::string source = "target/" + info.name;
    const std::string problem =
        checkpoint.tensors().contains(source)
            ? read_array(checkpoint, source, info.name, info.value.local(), info.value.device())
            : fmt::format("{}: not in the checkpoint", info.name);
    if (!problem.empty()) problems.push_back(problem);
  }
  parameters.refresh();
  fail_if_any(problems, checkpoint.folder().string());
}

std::vector<std::filesystem::path> checkpoint_folders(const RestoreCheckpointConfig& config) {
  std::vector<std::filesystem::path> folders;
  for (const std::string& path : config.path) {
    if (config.mode == "specific") {
      QT_CHECK_AS(ExitCode::kData, std::filesystem::is_directory(path),
                  "{}: no such checkpoint; RestoreCheckpointConfig.path names a folder "
                  "checkpoint_<step>",
                  path);
      folders.emplace_back(path);
      continue;
    }
    const std::vector<int64_t> steps = list_checkpoints(path);
    QT_CHECK_AS(ExitCode::kData, !steps.empty(), "{}: there is no checkpoint in this folder", path);
    if (config.mode == "all")
      for (const int64_t step : steps) folders.push_back(checkpoint_path(path, step));
    else
      folders.push_back(checkpoint_path(path, steps.back()));
  }
  return folders;
}

}  // namespace quintet
