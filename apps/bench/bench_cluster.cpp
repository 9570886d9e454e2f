// `quintet bench cluster`: what ops and collectives take on these ranks, as the file that `quintet plan
// --cluster` reads.

#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/bench/bench.h"
#include "apps/bench/cluster_links.h"
#include "apps/bench/cluster_ops.h"
#include "apps/bench/dtype_flag.h"
#include "apps/bench/rank_bench.h"
#include "apps/flags/command_line.h"
#include "apps/flags/result_format.h"
#include "runtime/base/files/atomic_file.h"

namespace quintet {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct Options {
  RankBench ranks;
  ComputeFlags compute;
  ResultFormat format;
  std::string name, output, dtype = "float32";
  double memory_gib = 0;
  int repeats = 3;
};

bool parse(std::span<char* const> args, Options& options) {
  CommandLine cli("bench cluster",
                  "Measures ops and collectives of these ranks: the cluster file of quintet plan.",
                  "quintet bench cluster --ranks=2 --output=cluster.json\n"
                  "mpirun -n 2 quintet bench cluster --output=cluster.json");
  CLI::App& app = cli.app();
  app.add_option("--output", options.output, "the cluster file to write")
      ->required()
      ->transform(mapped_path);
  app.add_option("--name", options.name, "of the cluster; default: the device's");
  add_dtype_flag(app, options.dtype);
  app.add_option("--memory_gib", options.memory_gib,
                 "of a rank; default: the GPU's, or its share of the host's")
      ->check(CLI::Range(0.001, 1e9));
  app.add_option("--repeats", options.repeats,
                 "runs of the training steps that ops are timed in, whose medians count; fewer "
                 "take less time")
      ->check(CLI::Range(1, 1000));
  options.compute.add_to(app);
  options.format.add_to(app);
  options.ranks.add_to(app);
  return cli.parse(args);
}

struct Measured {
  OpMeasurements ops;
  std::vector<CollectiveTimes> collectives;
  double overlap = 1;
  int64_t per_host = 1;
};

Measured measure(Comm& comm, const Options& options) {
  Measured measured;
  measured.collectives = measure_collectives(comm);
  measured.overlap = measure_overlap(comm);
  measured.per_host = std::ranges::count(comm.hosts(), comm.hosts().front());
  measured.ops = measure_ops(comm, options.dtype, options.repeats);
  return measured;
}

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

/// The members of a data sheet, for groups and ops that were not measured.
OrderedJson data_sheet(const Options& options, const Measured& measured) {
  Device& device = Device::current();
  const double shared = device.is_cpu() ? static_cast<double>(measured.per_host) : 1;
  const double gib = options.memory_gib > 0
                         ? options.memory_gib
                         : static_cast<double>(device.memory_bytes()) / (1 << 30) / shared;
  QT_CHECK(gib > 0, "bench cluster: the memory of '{}' is not known; say --memory_gib",
           device.description());
  OrderedJson json = {{"name", options.name.empty() ? device.description() : options.name},
                      {"gpu", !device.is_cpu()},
                      {"devices", options.ranks.size()},
                      {"devices_per_host", measured.per_host},
                      {"memory_gib", gib},
                      {"tflops", measured.ops.flops * 1e-12},
                      {"memory_gb_per_s", measured.ops.bytes * 1e-9},
                      {"op_us", measured.ops.launch * 1e6},
                      {"overlap", measured.overlap}};
  LinkTimes within{.bytes = measured.ops.bytes};  // one rank: nothing is sent
  for (const CollectiveTimes& times : measured.collectives) {
    if (times.collective != "all_gather") continue;
    if (times.hosts == 1) within = link_times(times);
    if (times.hosts == 1 || times.hosts != times.ranks) continue;
    const LinkTimes between = link_times(times);
    json["network_gb_per_s_per_host"] =
        between.bytes * 1e-9 * static_cast<double>(measured.per_host);
    json["network_us"] = between.latency * 1e6;
  }
  json["link_gb_per_s"] = within.bytes * 1e-9;
  json["link_us"] = within.latency * 1e6;
  return json;
}

OrderedJson op_json(const OpTime& time) {
  OrderedJson json = {{"call_us", time.call * 1e6},
                      {"us_per_gflop", time.flop * 1e15},
                      {"us_per_gb", time.byte * 1e15},
                      {"us_per_gexp", time.exponential * 1e15}};
  for (const auto& [cost, factor] : time.measured)
    json["measured"].push_back(
        {cost.flops * 1e-9, cost.bytes * 1e-9, cost.exponentials * 1e-9, factor});
  return json;
}

OrderedJson cluster_json(const Options& options, const Measured& measured) {
  OrderedJson json = data_sheet(options, measured);
  for (const auto& [name, time] : measured.ops.ops) json["ops"][name] = op_json(time);
  json["collectives"] = OrderedJson::array();
  for (const CollectiveTimes& times : measured.collectives)
    json["collectives"].push_back({{"collective", times.collective},
                                   {"ranks", times.ranks},
                                   {"hosts", times.hosts},
                                   {"bytes", times.bytes},
                                   {"us", scaled(times.seconds, 1e6)}});
  return json;
}

void print(const ResultFormat& format, const Measured& measured) {
  const auto line = [&](OrderedJson json) {
    json.emplace("bench", "cluster");
    format.print_object(json.dump());
  };
  for (const auto& [m, k, n, seconds] : measured.ops.products)
    line({{"product", {m, k, n}},
          {"us", seconds * 1e6},
          {"tflops", 2e-12 * static_cast<double>(m * k * n) / seconds}});
  for (const CollectiveTimes& times : measured.collectives)
    for (size_t i = 0; i < times.bytes.size(); ++i)
      line({{"collective", times.collective},
            {"ranks", times.ranks},
            {"hosts", times.hosts},
            {"bytes", times.bytes[i]},
            {"us", times.seconds[i] * 1e6},
            {"gb_per_s", times.bytes[i] / times.seconds[i] * 1e-9}});
  line({{"copy_gb_per_s", measured.ops.bytes * 1e-9},
        {"launch_us", measured.ops.launch * 1e6},
        {"overlap", measured.overlap}});
}

}  // namespace

int run_bench_cluster(std::span<char* const> args) {
  Options options;
  if (!parse(args, options)) return 0;
  options.ranks.start("cluster", {args.begin(), args.end()}, options.compute);
  check_dtype_flag("cluster", options.dtype);
  Measured measured;
  options.ranks.run([&](Comm& comm) {
    Measured of_rank = measure(comm, options);
    if (comm.rank() == 0) measured = std::move(of_rank);
  });
  if (!options.ranks.leads()) return 0;
  print(options.format, measured);
  atomic_write_file(options.output, cluster_json(options, measured).dump(1) + "\n");
  options.format.print_text(fmt::format("{} ranks, {:.3g} TFLOP/s, {:.3g} GB/s: {}\n",
                                        options.ranks.size(), measured.ops.flops * 1e-12,
                                        measured.ops.bytes * 1e-9, options.output));
  return 0;
}

}  // namespace quintet
