#include "apps/plan/plan_cluster.h"

#include <cstdio>

#include "apps/flags/command_line.h"
#include "apps/plan/model_case.h"
#include "apps/plan/search.h"
#include "apps/process/output.h"
#include "runtime/base/files/atomic_file.h"

namespace quintet {
namespace {

/// Of a device, whatever the batch.
double state_gb(const LayoutRow& row) {
  int64_t bytes = 0;
  for (const MemoryKind kind :
       {MemoryKind::kParameters, MemoryKind::kGradients, MemoryKind::kOptimizer})
    bytes += row.memory[static_cast<size_t>(kind)];
  return static_cast<double>(bytes) / 1e9;
}

/// A run with "sequences_per_second" or with "state_gb".
PublishedRun plan_run(const Json& run, const Json& clusters) {
  const bool of_state = run.has("state_gb");
  PublishedRun result{.name = run["name"].as_string(),
                      .source = run["source"].as_string(),
                      .unit = of_state ? "GB" : "sequences/s",
                      .published = run[of_state ? "state_gb" : "sequences_per_second"].as_double(),
                      .planned = 0,
                      .refused = {}};
  Cluster cluster = cluster_of(clusters[run["cluster"].as_string()]);
  cluster.devices = run["devices"].as_int();
  ModelCase options;
  options.model = run["model"].as_string();
  options.batch = run["batch"].as_int();
  options.inputs = run["inputs"].as_int();
  options.targets = run["targets"].as_int();
  options.dtype = run["dtype"].as_string();
  if (of_state) options.inputs = options.targets = 1;  // a step holds most when gradients are there
  const auto layouts = parse_layouts(run["layout"].as_string(), static_cast<int>(cluster.devices));
  QT_CHECK(layouts.size() == 1, "{}: expected one layout", run.path());
  const LayoutRow row = plan_layout(layout_case(options), layouts[0], cluster.job(), 1);
  result.refused = row.refused;
  if (row.refused.empty())
    result.planned = of_state ? state_gb(row) : static_cast<double>(options.batch) / row.seconds;
  return result;
}

std::vector<std::pair<std::string, std::string>> facts_of(const Cluster& cluster) {
  return {{"cluster", cluster.name},
          {"devices", fmt::format("{}, {} a host", cluster.devices, cluster.devices_per_host)},
          {"device", fmt::format("{:g} GiB, {:g} TFLOP/s of which {:g} are reached, {:g} GB/s",
                                 cluster.memory_gib, cluster.tflops,
                                 cluster.tflops * cluster.matmul_efficiency,
                                 cluster.memory_gb_per_s * cluster.memory_efficiency)},
          {"links", fmt::format("{:g} GB/s in a host, {:g} GB/s from a host to others",
                                cluster.link_gb_per_s, cluster.network_gb_per_s_per_host)}};
}

void print_table(const ResultFormat& format, const std::vector<LayoutRow>& rows,
                 const LayoutRow* best) {
  format.print_text(layout_table(rows) +
                    (best == nullptr
                         ? "no layout runs and fits\n"
                         : fmt::format("take {} {}\n", best->layout.name(), best->flags)));
}

}  // namespace

std::vector<PublishedRun> plan_published(const std::string& file) {
  const Json json = as_usage([&] { return Json::read(file); });
  std::vector<PublishedRun> runs;
  for (const Json& run : as_usage([&] { return json["runs"].items(); }))
    runs.push_back(as_usage([&] { return plan_run(run, json["clusters"]); }));
  return runs;
}

void ClusterPlan::add_to(CLI::App& app) {
  app.add_option("--cluster", cluster,
                 "a JSON file that describes devices and links: plans every layout of them");
  app.add_option("--layouts", layouts,
                 "with --cluster: DATAxMODEL:aNpN, of experts DATAxMODELxEXPERT:aNpN, with commas "
                 "between; default: all of them");
  app.add_flag(
      "--search", search,
      "with --cluster: microbatches, remat, an optimizer on the host and, where nothing else "
      "fits, gradients in bfloat16 too, for the fastest step of each layout that fits; "
      "the fastest first");
  app.add_option("--published", published, "plans beside a file's figures");
  format.add_to(app);
  app.add_option("--report", report, "with --cluster: HTML page to write")->transform(mapped_path);
}

void ClusterPlan::check(const TrainerOptions& options) const {
  QT_CHECK(!cluster.empty() || !published.empty() || (layouts.empty() && report.empty()),
           "--layouts and --report go with --cluster=FILE");
  if (!report.empty()) check_replaceable(report);
  QT_CHECK(!search || !cluster.empty(), "--search: of which devices? Say --cluster=FILE");
  QT_CHECK(!search || (options.num_microbatches == 1 && !options.interleave),
           "--search chooses microbatches: leave --microbatches and --interleave_microbatches");
}

std::optional<Cluster> ClusterPlan::read() const {
  if (cluster.empty()) return std::nullopt;
  return read_cluster(cluster);
}

void plan_cluster(const ClusterPlan& plan, const std::optional<Cluster>& cluster,
                  const std::string& title, const LayoutCase& what) {
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<LayoutRow> rows;
  if (cluster) {
    const int devices = static_cast<int>(cluster->devices);
    const SimulatedJob job = cluster->job();
    facts = facts_of(*cluster);
    const double flops = model_flops(what);
    facts.emplace_back("a step",
                       fmt::format("{} tokens, {} TFLOP", grouped(static_cast<double>(what.tokens)),
                                   grouped(flops / 1e12)));
    const auto layouts = plan.layouts.empty() ? all_layouts(devices, what.experts)
                                              : parse_layouts(plan.layouts, devices, what.experts);
    if (plan.search)
      rows = search_layouts(what, layouts, job, flops);
    else
      for (const TrainingLayout& layout : layouts)
        rows.push_back(plan_layout(what, layout, job, flops));
    const LayoutRow* best = best_of(rows);
    for (const LayoutRow& row : rows)
      plan.format.print_object(
          layout_json(row, &row == best, {{"plan", cluster->name}, {"model", title}}));
    print_table(plan.format, rows, best);
  }
  std::vector<PublishedRun> published;
  if (!plan.published.empty()) {
    published = plan_published(plan.published);
    for (const PublishedRun& run : published) {
      nlohmann::ordered_json object = {
          {"run", run.name}, {"unit", run.unit}, {"published", run.published}};
      if (run.refused.empty())
        object["planned"] = run.planned;
      else
        object["refused"] = run.refused;
      plan.format.print_object(object.dump());
    }
    plan.format.print_text(published_table(published));
  }
  if (plan.report.empty()) return;
  atomic_write_file(plan.report, layout_report("Plan of " + title, facts, rows, published));
  fmt::print(stderr, "report: {}\n", plan.report);
}

}  // namespace quintet
