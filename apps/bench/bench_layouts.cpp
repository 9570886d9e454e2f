// `quintet bench layouts`: training steps on every layout of N ranks, which are those of mpirun or
// threads of this process.

#include <cstdio>

#include "apps/bench/bench.h"
#include "apps/bench/bench_models.h"
#include "apps/bench/rank_bench.h"
#include "apps/flags/command_line.h"
#include "apps/flags/microbatch_flags.h"
#include "apps/plan/gin_case.h"
#include "apps/plan/layout_report.h"
#include "apps/plan/layout_step.h"
#include "apps/process/output.h"
#include "runtime/base/clock.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/ops/ops.h"

namespace quintet {
namespace {

struct Options {
  std::vector<std::string> files;
  BenchOptions bench;
  std::string layouts, report;
  RankBench ranks;
  MicrobatchFlags microbatches;
};

bool parse(const std::vector<std::string>& args, Options& options) {
  CommandLine cli("bench layouts",
                  "Times training steps on every layout of the ranks: those of mpirun, or threads.",
                  "quintet bench layouts --ranks=4 --model=t5_1_1_small --report=layouts.html\n"
                  "mpirun -n 4 quintet bench layouts --layouts=2x2:a1p2,4x1:a1p1\n"
                  "quintet bench layouts t5x/examples/t5/t5_1_1/small.gin --gin.DROPOUT_RATE=0.0 "
                  "--gin.network.T5Config.dtype=\"'float32'\" --ranks=2");
  CLI::App& app = cli.app();
  app.add_option("FILE", options.files, "gin files that define MODEL, instead of --model");
  add_model_flags(app, options.bench);
  app.add_option("--steps", options.bench.steps, "timed steps")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  app.add_option(
      "--layouts", options.layouts,
      "DATAxMODEL:aNpN, of experts DATAxMODELxEXPERT:aNpN, with commas between; default: "
      "all of them");
  app.add_option("--report", options.report, "write an HTML page to this file")
      ->transform(mapped_path);
  options.bench.compute.add_to(app);
  options.bench.format.add_to(app);
  options.ranks.add_to(app);
  options.microbatches.add_microbatches_to(app);
  options.microbatches.add_to(app);
  if (!cli.parse(args)) return false;
  if (!options.report.empty()) check_replaceable(options.report);
  return true;
}

/// FLOP/s of large matrix products that all ranks compute at once, together.
double measured_peak(Comm& comm) {
  constexpr int64_t kSize = 768;
  const auto matrix = [](const char* rows, const char* columns) {
    return Tensor::zeros({{{rows, kSize}, {columns, kSize}}, DType::f32});
  };
  const Tensor x = matrix("m", "k"), w = matrix("k", "n");
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    comm.world().barrier();
    const auto start = Clock::now();
    for (int again = 0; again < 4; ++again) ops::matmul(x, w);
    Device::current().synchronize();
    comm.world().barrier();
    best = std::max(best, 4 * 2.0 * kSize * kSize * kSize / seconds_since(start));
  }
  best *= comm.size();
  comm.host().world().all_reduce(&best, 1, DType::f64, Reduction::max).wait();
  return best;
}

struct Measured {
  std::vector<LayoutRow> rows = {};
  double peak = 0;  // FLOP/s of all ranks
};

/// On every rank; `rows`: what was planned of each layout.
Measured measure(const LayoutCase& what, std::vector<LayoutRow> rows, double flops, Comm& comm,
                 int64_t steps) {
  Measured measured{.rows = std::move(rows), .peak = measured_peak(comm)};
  for (LayoutRow& row : measured.rows) {
    if (!row.refused.empty()) continue;
    row = measure_layout(what, row.layout, comm, steps);
    row.mfu = flops / row.seconds / measured.peak;
    if (comm.rank() == 0)
      fmt::print(stderr, "{}: {:.1f} tokens/s\n", row.layout.name(), row.tokens_per_second);
  }
  return measured;
}

void print(const Options& options, const Measured& measured) {
  const BenchOptions& bench = options.bench;
  const std::string device = Device::current().description();
  const std::string ranks = fmt::format("{} {}", options.ranks.size(), options.ranks.carrier());
  const LayoutRow* best = best_of(measured.rows);
  for (const LayoutRow& row : measured.rows)
    bench.format.print_object(layout_json(
        row, &row == best,
        {{"bench", "layouts"}, {"model", bench.model}, {"device", device}, {"ranks", ranks}}));
  bench.format.print_text(layout_table(measured.rows));
  if (options.report.empty()) return;
  atomic_write_file(
      options.report,
      layout_report(fmt::format("Layouts of {} on {} ranks", bench.model, options.ranks.size()),
                    {{"ranks", ranks},
                     {"device", device},
                     {"batch", fmt::format("{} x ({} + {}) tokens", bench.batch, bench.inputs,
                                           bench.targets)},
                     {"matrix products", fmt::format("{:.1f} GFLOP/s, measured: MFU is against it",
                                                     measured.peak / 1e9)}},
                    measured.rows));
  fmt::print(stderr, "report: {}\n", options.report);
}

}  // namespace

int run_bench_layouts(std::span<char* const> args) {
  Options options;
  options.bench.model = "t5_1_1_tiny";
  std::vector<std::string> left(args.begin(), args.end());
  gin::CommandLine gin_line = gin::extract_command_line(left);
  if (!parse(left, options)) return 0;
  gin_line.files.insert(gin_line.files.end(), options.files.begin(), options.files.end());
  options.ranks.start("layouts", {args.begin(), args.end()}, options.bench.compute);
  const int ranks = options.ranks.size();

  std::unique_ptr<GinSession> session;
  if (!gin_line.files.empty()) {
    options.bench.model = gin_line.files.back();
    session = model_session("bench layouts", gin_line);
  }
  LayoutCase what =
      session != nullptr ? gin_case(options.bench, *session) : layout_case(options.bench);
  what.options = options.microbatches.options(ranks);
  std::vector<LayoutRow> rows;
  for (const TrainingLayout& layout : options.layouts.empty()
                                          ? all_layouts(ranks, what.experts)
                                          : parse_layouts(options.layouts, ranks, what.experts))
    rows.push_back(plan_layout(
        what, layout,
        {.hosts = std::vector<std::string>(static_cast<size_t>(ranks), "abstract"), .machine = {}},
        1));
  const double flops = model_flops(what);
  Measured measured;
  options.ranks.run([&](Comm& comm) {
    Measured of_rank = measure(what, rows, flops, comm, options.bench.steps);
    if (comm.rank() == 0) measured = std::move(of_rank);
  });
  if (!options.ranks.leads()) return 0;
  print(options, measured);
  QT_CHECK(best_of(measured.rows) != nullptr, "bench layouts: no layout of {} can run on {} ranks",
           options.bench.model, ranks);
  return 0;
}

}  // namespace quintet
