#include "apps/train/state/state_arrays.h"

#include <algorithm>
#include <regex>
#include <sstream>

#include "apps/model/checkpoint_parameters.h"
#include "apps/model/quantized_model.h"

namespace quintet {
namespace {

HostArray as_bfloat16(const HostArray& array) {
  HostArray out(DType::bf16, array.shape);
  const auto to = out.as<bfloat16>();
  const auto from = array.as<float>();
  for (size_t i = 0; i < to.size(); ++i) to[i] = bfloat16(from[i]);
  return out;
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
    // Of others' checkpoints the parameters alone are read: optimizers begin anew.
    if (!checkpoint.is_native() && array.name.starts_with("state/")) continue;
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

}  // namespace quintet
