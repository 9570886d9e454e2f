#include "apps/train_state.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "apps/quantized_model.h"
#include "runtime/base/json.h"

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

HostArray as_bfloat16(const HostArray& array) {
  HostArray out(DType::bf16, array.shape);
  const auto to = out.as<bfloat16>();
  const auto from = array.as<float>();
  for (size_t i = 0; i < to.size(); ++i) to[i] = bfloat16(from[i]);
  return out;
}

std::vector<int64_t> shape_of(const View& view) {
  return {view.sizes.begin(), view.sizes.begin() + view.rank};
}

int64_t bytes_of(const View& view) { return view.elements() * size_of(view.dtype); }

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

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

/// Whether `to` is so many experts of which the checkpoint has one.
bool is_upcycled(const CheckpointReader& from, const std::string& source, const View& to,
                 int64_t experts) {
  if (experts == 0 || to.rank < 2 || to.global[0] != experts) return false;
  const std::vector<int64_t> one(to.global.begin() + 1, to.global.begin() + to.rank);
  return from.tensors().at(source).shape == one;
}

/// Every expert of this rank begins as the dense array.
std::string upcycle(const CheckpointReader& from, const std::string& source, const StateArray& to) {
  View expert = to.view;
  --expert.rank;
  for (size_t i = 0; i < static_cast<size_t>(expert.rank); ++i) {
    expert.sizes[i] = to.view.sizes[i + 1];
    expert.origin[i] = to.view.origin[i + 1];
    expert.global[i] = to.view.global[i + 1];
  }
  for (int64_t i = 0; i < to.view.size(0); ++i) {
    expert.pointer = static_cast<std::byte*>(to.view.pointer) + i * bytes_of(expert);
    if (std::string problem = read_array(from, source, to.name, expert, *to.device);
        !problem.empty())
      return problem;
  }
  return "";
}

/// Where a name of the model is read from by the assignment rules; nullopt: from nowhere.
std::optional<std::string> source_name(const std::string& name,
                                       const std::vector<AssignmentRule>& rules,
                                       std::vector<bool>& used) {
  for (size_t i = 0; i < rules.size(); ++i) {
    std::smatch match;
    if (!std::regex_match(name, match, std::regex(rules[i].pattern))) continue;
    used[i] = true;
    if (!rules[i].replacement) return std::nullopt;
    // Python writes groups as \1 or \g<1>, ECMAScript as $1.
    std::string format = std::regex_replace(*rules[i].replacement, std::regex(R"(\$)"), "$$$$");
    format = std::regex_replace(format, std::regex(R"(\\g<(\d+)>|\\(\d))"), "$$$1$2");
    return match.format(format);
  }
  return name;
}

}  // namespace

std::string to_json(const RunState& state) {
  nlohmann::ordered_json window = nlohmann::ordered_json::object();
  for (const auto& [name, metric] : state.window)
    window[name] = {json_number(metric.total), json_number(metric.count), metric.per_step};
  nlohmann::ordered_json actions = nlohmann::ordered_json::object();
  for (const auto& [name, values] : state.actions)
    for (const auto& [key, value] : values) actions[name][key] = json_number(value);
  const nlohmann::ordered_json json = {{"step", state.step},
                                       {"first_step", state.first_step},
                                       {"skipped_updates", state.skipped_updates},
                                       {"skipped_in_a_row", state.skipped_in_a_row},
                                       {"evaluated_step", state.evaluated_step},
                                       {"metrics_bytes", state.metrics_bytes},
                                       {"seed", state.seed},
                                       {"data_position", state.data_position},
                                       {"window", window},
                                       {"actions", actions},
                                       {"vocabularies", to_json(state.vocabularies)}};
  return json.dump();
}

RunState run_state_from_json(const std::string& text, const std::string& where) {
  const Json json = Json::parse(text, where);
  QT_CHECK_AS(ExitCode::kData, !json.has("quantized"),
              "{}: is a quantized model's, which cannot be trained; name the run that it was made "
              "from",
              where);
  RunState state;
  state.step = json["step"].as_int();
  state.first_step = json["first_step"].as_int();
  state.skipped_updates = json["skipped_updates"].as_int();
  state.skipped_in_a_row = json["skipped_in_a_row"].as_int();
  state.evaluated_step = json["evaluated_step"].as_int();
  state.metrics_bytes = json["metrics_bytes"].as_int();
  state.seed = json["seed"].as_int();
  state.data_position = json["data_position"].as_string();
  for (const auto& [name, metric] : json["window"].members())
    state.window[name] = {metric[size_t{0}].as_double(), metric[size_t{1}].as_double(),
                          metric[size_t{2}].as_bool()};
  if (json.has("actions"))  // checkpoints made before actions had a state have none
    for (const auto& [name, values] : json["actions"].members())
      for (const auto& [key, value] : values.members())
        state.actions[name][key] = value.as_double();
  if (json.has("vocabularies"))  // nor those made before vocabularies were recorded
    state.vocabularies = data::vocabulary_records_from(json["vocabularies"]);
  return state;
}

StateSlices to_slices(Trainer& trainer, const std::string& dtype) {
  StateSlices out;
  const std::vector<StateArray> arrays = trainer.state();
  out.copies.reserve(arrays.size() + 1);  // slices point into them
  for (const StateArray& array : arrays) {
    const View& view = array.view;
    out.slices.push_back({array.name, view.dtype, whole_shape_of(view), origin_of(view),
                          shape_of(view), static_cast<const std::byte*>(view.pointer)});
    const bool rounded = dtype == "bfloat16" && array.name.starts_with("target/");
    if (rounded || !array.device->is_cpu()) {
      HostArray copy = host_copy(array);
      out.copies.push_back(rounded ? as_bfloat16(copy) : std::move(copy));
      out.slices.back().dtype = out.copies.back().dtype;
      out.slices.back().data = out.copies.back().bytes.data();
    }
  }
  out.copies.emplace_back(DType::i32, std::vector<int64_t>{});
  out.copies.back().as<int32_t>()[0] = static_cast<int32_t>(trainer.step());
  out.slices.push_back(whole_slice("state/step", out.copies.back()));
  return out;
}

void keep_own(std::vector<TensorSlice>& slices, const Group& ranks) {
  std::string origins;
  for (const TensorSlice& slice : slices)
    origins += fmt::format("{}\n", fmt::join(slice.origin, ","));
  const std::vector<std::string> of_ranks = gather_text(ranks, origins);
  std::vector<std::istringstream> lines(of_ranks.begin(), of_ranks.end());
  std::vector<TensorSlice> own;
  for (size_t i = 0; i < slices.size(); ++i) {
    std::vector<std::string> line(lines.size());
    std::vector<int> holders;  // of this rank's block
    for (size_t rank = 0; rank < lines.size(); ++rank)
      QT_ASSERT(std::getline(lines[rank], line[rank]));
    const auto self = static_cast<size_t>(ranks.rank());
    for (size_t rank = 0; rank < lines.size(); ++rank)
      if (line[rank] == line[self]) holders.push_back(static_cast<int>(rank));
    if (holders[i % holders.size()] == ranks.rank()) own.push_back(slices[i]);
  }
  slices = std::move(own);
}

void load_arrays(const CheckpointReader& checkpoint, Trainer& trainer) {
  load_arrays(checkpoint, RestoreCheckpointConfig{}, trainer);
}

void load_arrays(const CheckpointReader& checkpoint, const RestoreCheckpointConfig& config,
                 Trainer& trainer) {
  check_not_quantized(checkpoint);
  std::vector<std::string> problems;
  std::vector<bool> rule_used(config.assignment_map.size());
  std::map<std::string, bool> taken;
  for (const StateArray& array : trainer.state()) {
    const auto source = source_name(array.name, config.assignment_map, rule_used);
    if (!source || !checkpoint.tensors().contains(*source)) {
      if (!config.fallback_to_scratch)
        problems.push_back(fmt::format("{}: not in the checkpoint", source.value_or(array.name)));
      continue;
    }
    taken[*source] = true;
    const std::string problem =
        is_upcycled(checkpoint, *source, array.view, config.upcycled_experts)
            ? upcycle(checkpoint, *source, array)
            : read_array(checkpoint, *source, array.name, array.view, *array.device);
    if (!problem.empty()) problems.push_back(problem);
  }
  if (config.strict)
    for (const auto& [name, tensor] : checkpoint.tensors())
      if (!taken.contains(name) && name != "state/step" && config.assignment_map.empty())
        problems.push_back(fmt::format("{}: in the checkpoint, not in the model", name));
  for (size_t i = 0; i < rule_used.size(); ++i)
    if (!rule_used[i])
      problems.push_back(fmt::format("assignment_map: '{}' matches no name of the model",
                                     config.assignment_map[i].pattern));
  fail_if_any(problems, checkpoint.folder().string());
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
