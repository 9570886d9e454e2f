#include "apps/plan/layouts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "runtime/base/check.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

std::string gib(int64_t bytes) {
  return fmt::format("{:.4g}", static_cast<double>(bytes) / (1 << 30));
}

TrainingLayout parse_layout(const std::string& text, int64_t experts) {
  static const std::regex kForm(
      R"((?:r(\d{1,6})x)?(\d{1,6})x(\d{1,6})(?:x(\d{1,6}))?(?::a([12])p([12])([sc]?))?)");
  std::smatch found;
  QT_CHECK(
      std::regex_match(text, found, kForm),
      "--layouts: '{}' is not a layout; expected DATAxMODEL:aNpN, like 2x2:a1p2 (2 data, 2 "
      "model ranks; activations sharded by 1 dimension, parameters by 2), a1p2s (sequence "
      "parallel), a1p2c (context parallel), rREPLICAxDATAxMODEL:aNpN, or DATAxMODELxEXPERT:aNpN",
      text);
  QT_CHECK(
      experts > 0 || !found[4].matched,
      "--layouts: {} has an expert axis, but the model has no experts; expected DATAxMODEL:aNpN",
      text);
  TrainingLayout layout{.data = std::stoi(found[2]), .model = std::stoi(found[3])};
  if (found[1].matched) layout.replica = std::stoi(found[1]);
  if (experts > 0) layout.expert = found[4].matched ? std::stoi(found[4]) : 1;
  if (found[5].matched) {
    layout.activations = std::stoi(found[5]);
    layout.parameters = std::stoi(found[6]);
    layout.sequence = found[7] == "s";
    layout.context = found[7] == "c";
  }
  QT_CHECK((!layout.sequence && !layout.context) || layout.activations == 1,
           "--layouts: '{}': {} parallelism is a table of 1 dimension of activations: a1p{}{}",
           text, layout.sequence ? "sequence" : "context", layout.parameters, found[7].str());
  return layout;
}

}  // namespace

std::string TrainingLayout::name() const {
  return fmt::format("{}{}x{}{}:a{}p{}{}", replica > 1 ? fmt::format("r{}x", replica) : "", data,
                     model, expert > 0 ? fmt::format("x{}", expert) : "", activations, parameters,
                     sequence  ? "s"
                     : context ? "c"
                               : "");
}

std::vector<MeshAxis> TrainingLayout::mesh() const {
  std::vector<MeshAxis> axes = {{"data", data}, {"model", model}};
  if (expert > 0) axes.insert(axes.begin() + 1, {"expert", expert});
  if (replica > 1) axes.insert(axes.begin(), {"replica", replica});
  return axes;
}

LogicalAxisRules TrainingLayout::rules() const {
  const AxisRuleOptions options{.activation_partitioning_dims = activations,
                                .parameter_partitioning_dims = parameters,
                                .additional_rules = {},
                                .sequence_parallel = sequence,
                                .context_parallel = context};
  LogicalAxisRules rules =
      expert > 0 ? moe_logical_axis_rules(options) : standard_logical_axis_rules(options);
  return replica > 1 ? with_replicas(std::move(rules)) : rules;
}

std::vector<TrainingLayout> all_layouts(int ranks, int64_t experts) {
  std::vector<TrainingLayout> layouts;
  const auto add = [&](int data, int model, int expert) {
    for (int activations = 1; activations <= (model > 1 ? 2 : 1); ++activations)
      for (int parameters = 1; parameters <= (data > 1 ? 2 : 1); ++parameters)
        layouts.push_back({data, model, activations, parameters, expert});
    for (int parameters = 1; model > 1 && parameters <= (data > 1 ? 2 : 1); ++parameters)
      layouts.push_back({.data = data,
                         .model = model,
                         .parameters = parameters,
                         .expert = expert,
                         .sequence = true});
    // Whether parameters are sharded over all data ranks or some is what replicas change.
    for (int replica = 2; 2 * replica <= data; ++replica)
      if (data % replica == 0) layouts.push_back({data / replica, model, 1, 2, expert, replica});
  };
  for (int model = 1; model <= ranks; ++model) {
    if (ranks % model != 0) continue;
    const int rest = ranks / model;
    if (experts == 0) add(rest, model, 0);
    for (int expert = 1; expert <= std::min<int64_t>(rest, experts); ++expert)
      if (rest % expert == 0 && experts % expert == 0) add(rest / expert, model, expert);
  }
  return layouts;
}

std::vector<TrainingLayout> parse_layouts(const std::string& text, int ranks, int64_t experts) {
  std::vector<TrainingLayout> layouts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const TrainingLayout layout = parse_layout(text.substr(at, end - at), experts);
    QT_CHECK(layout.ranks() == ranks, "--layouts: {} needs {} ranks, there are {}", layout.name(),
             layout.ranks(), ranks);
    layouts.push_back(layout);
    at = end + 1;
  }
  return layouts;
}

int64_t LayoutRow::sent_bytes() const {
  int64_t bytes = 0;
  for (const auto& [what, entry] : traffic) bytes += entry.bytes;
  return bytes;
}

const LayoutRow* best_of(const std::vector<LayoutRow>& rows) {
  const LayoutRow* best = nullptr;
  for (const LayoutRow& row : rows)
    if (row.runs() && (best == nullptr || row.seconds < best->seconds)) best = &row;
  return best;
}

std::string layout_table(const std::vector<LayoutRow>& rows) {
  const LayoutRow* best = best_of(rows);
  size_t width = 14;
  for (const LayoutRow& row : rows) width = std::max(width, row.layout.name().size() + 2);
  std::string text =
      fmt::format("{:<{}}{:>12}{:>8}{:>12}{:>12}{:>12}{:>12}{:>12}{:>10}\n", "layout", width,
                  "tokens/s", "MFU %", "s a step", "compute", "exposed", "data", "MiB sent", "GiB");
  std::string refused;
  for (const LayoutRow& row : rows) {
    if (!row.refused.empty()) {
      refused += fmt::format("{:<{}}cannot run: {}\n", row.layout.name(), width, row.refused);
      continue;
    }
    text += fmt::format(
        "{:<{}}{:>12.1f}{:>8.2f}{:>12.5f}{:>12.5f}{:>12.5f}{:>12.5f}{:>12.2f}{:>10}{}{}{}\n",
        row.layout.name(), width, row.tokens_per_second, 100 * row.mfu, row.seconds, row.compute,
        row.exposed, row.data, static_cast<double>(row.sent_bytes()) / (1 << 20),
        gib(MemoryMeter::sum(row.memory)),
        &row == best ? " *"
        : row.fits   ? ""
                     : " too large",
        row.flags.empty() ? "" : "  " + row.flags,
        row.pinned_bytes == 0 ? ""
                              : fmt::format("  {} GiB pinned on the host", gib(row.pinned_bytes)));
  }
  return text + refused;
}

nlohmann::ordered_json counts_json(const DeviceCounts& counts, int64_t steps) {
  return {{"launches", counts.launches / steps},
          {"copies", counts.copies / steps},
          {"host_waits", counts.host_waits / steps},
          {"bytes_to_host", counts.bytes_to_host / steps},
          {"staged_bytes", counts.staged_bytes / steps}};
}

std::string layout_json(const LayoutRow& row, bool best,
                        const std::vector<std::pair<std::string, std::string>>& facts) {
  nlohmann::ordered_json json;
  for (const auto& [key, value] : facts) json[key] = value;
  json["layout"] = row.layout.name();
  if (!row.flags.empty()) json["flags"] = row.flags;
  if (!row.refused.empty()) {
    json["refused"] = row.refused;
    return json.dump();
  }
  json["tokens_per_second"] = row.tokens_per_second;
  json["mfu"] = row.mfu;
  json["seconds_per_step"] = row.seconds;
  json["seconds"] = {{"compute", row.compute}, {"exposed", row.exposed}, {"data", row.data}};
  json["sent"] = nlohmann::ordered_json::array();
  for (const auto& [what, entry] : row.traffic)
    json["sent"].push_back({{"collective", what.first},
                            {"over", what.second},
                            {"calls", entry.calls},
                            {"bytes", entry.bytes}});
  if (row.messages > 0) json["messages"] = row.messages;
  json["exposed_communication"] = row.compute > 0 ? row.exposed / row.compute : 0;
  json.update(counts_json(row.counts, 1));
  for (int kind = 0; kind < kMemoryKinds; ++kind)
    json["peak_bytes"][std::string(name_of(static_cast<MemoryKind>(kind)))] =
        row.memory[static_cast<size_t>(kind)];
  json["peak_bytes"]["all"] = MemoryMeter::sum(row.memory);
  if (row.pinned_bytes > 0) json["pinned_bytes"] = row.pinned_bytes;
  json["fits"] = row.fits;
  json["best"] = best;
  return json.dump();
}

}  // namespace quintet
