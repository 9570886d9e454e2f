// `quintet bench checkpoint`: how long the training loop stands still for a save, how fast the rest
// goes in the background, and how fast it all comes back; of a GPU, how long its copies take.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/bench/bench.h"
#include "apps/flags/command_line.h"
#include "apps/flags/compute_flags.h"
#include "apps/flags/result_format.h"
#include "apps/train/state/device_snapshot.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_reader.h"
#include "runtime/base/clock.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

struct Options {
  std::string folder;
  int64_t megabytes = 256, tensors = 100, saves = 5;
};

HostArrays made_up_state(const Options& options) {
  HostArrays state;
  const int64_t columns = 512;
  const int64_t rows =
      std::max<int64_t>(1, options.megabytes * 1'000'000 / (4 * columns * options.tensors));
  for (int64_t i = 0; i < options.tensors; ++i) {
    HostArray array(DType::f32, {rows, columns});
    float value = static_cast<float>(i);
    for (float& x : array.as<float>()) x = value += 0.125f;
    state.emplace(fmt::format("target/layer_{}/kernel", i), std::move(array));
  }
  return state;
}

/// The state as a run has it, in the current device's memory.
struct DeviceState {
  explicit DeviceState(const HostArrays& state) {
    for (const auto& [name, array] : state) {
      const auto size = static_cast<int64_t>(array.bytes.size());
      arrays.slices.push_back(whole_slice(name, array));
      arrays.devices.push_back(&device);
      bytes += size;
      if (device.is_cpu()) continue;
      memory.push_back(device.memory().allocate(size));
      device.copy_in(memory.back().get(), array.bytes.data(), size);
      arrays.slices.back().data = memory.back().get();
    }
    device.synchronize();
  }
  Device& device = Device::current();
  StateSlices arrays;
  std::vector<Buffer> memory;
  int64_t bytes = 0;
};

/// One copy of the state, the least of several, into memory that is there.
double copy_seconds(const DeviceState& state, int64_t times) {
  const Buffer copy = state.device.pinned(state.bytes);
  double best = 1e9;
  for (int64_t i = -1; i < times; ++i) {  // the first touches the memory
    const auto start = Clock::now();
    std::byte* at = copy.get();
    for (const TensorSlice& slice : state.arrays.slices) {
      const int64_t bytes = slice.sizes[0] * slice.sizes[1] * size_of(slice.dtype);
      state.device.copy(at, slice.data, bytes);
      at += bytes;
    }
    state.device.synchronize();
    if (i >= 0) best = std::min(best, seconds_since(start));
  }
  return best;
}

struct Measured {
  double bytes = 0, copy = 0, first_stall = 0, stall = 1e9, copied = 1e9, write = 1e9,
         restore = 1e9;
};

Measured measure(const Options& options, const std::filesystem::path& folder) {
  const HostArrays host_state = made_up_state(options);
  const DeviceState state(host_state);
  DeviceSnapshot snapshot;
  Measured result;
  result.bytes = static_cast<double>(state.bytes);
  result.copy = copy_seconds(state, options.saves);
  const FolderLock lock(folder);
  CheckpointManager manager(lock);
  for (int64_t step = 0; step < options.saves; ++step) {
    const auto start = Clock::now();
    if (state.device.is_cpu()) {
      manager.save_async(step, state.arrays.slices, "{}");
    } else {
      snapshot.take(state.arrays, "float32", state.device);
      manager.save_async(
          step, [&] { return snapshot.finish(); }, "{}");
    }
    const double stall = seconds_since(start);
    state.device.finish_side_copies();
    const double copied = seconds_since(start);
    manager.wait();
    result.write = std::min(result.write, manager.last_timing().write_seconds);
    if (step == 0) {
      result.first_stall = stall;  // takes the memory for the copy
      continue;
    }
    result.stall = std::min(result.stall, stall);
    result.copied = std::min(result.copied, copied);
  }
  manager.finish();
  for (int i = 0; i < 2; ++i) {
    const auto start = Clock::now();
    read_checkpoint(manager.latest_whole()->folder(), Verify::size);
    result.restore = std::min(result.restore, seconds_since(start));
  }
  return result;
}

}  // namespace

int run_bench_checkpoint(std::span<char* const> args) {
  Options options;
  CommandLine cli(
      "bench checkpoint",
      "Saves generated tensors in the background, several times, and restores them. Stall: what "
      "the training loop waits; copied: until the save has its copy. Times are the "
      "minimum over all saves.",
      "quintet bench checkpoint --megabytes=1000\n"
      "quintet bench checkpoint --dir=/mnt/scratch/bench");
  cli.app()
      .add_option("--dir", options.folder, "new folder to write to and remove; default: in /tmp")
      ->transform(mapped_path)
      ->check(CLI::NonexistentPath);
  cli.app()
      .add_option("--megabytes", options.megabytes, "size of the state in MB")
      ->check(CLI::Range(1, 1'000'000));
  cli.app()
      .add_option("--tensors", options.tensors, "number of tensors")
      ->check(CLI::Range(1, 100'000));
  cli.app().add_option("--saves", options.saves, "number of saves")->check(CLI::Range(2, 1000));
  ComputeFlags compute;
  ResultFormat format;
  compute.add_to(cli.app());
  format.add_to(cli.app());
  if (!cli.parse(args)) return 0;
  compute.start();
  const std::filesystem::path folder =
      options.folder.empty() ? std::filesystem::temp_directory_path() /
                                   fmt::format("quintet-bench-checkpoint-{}", ::getpid())
                             : std::filesystem::path(options.folder);
  struct Removal {
    const std::filesystem::path& folder;
    ~Removal() {
      std::error_code ignored;
      std::filesystem::remove_all(folder, ignored);
    }
  } const removal{folder};
  const Measured m = measure(options, folder);
  const double megabytes = m.bytes / 1e6;
  const nlohmann::ordered_json json = {{"bench", "checkpoint"},
                                       {"megabytes", megabytes},
                                       {"tensors", options.tensors},
                                       {"copy_seconds", m.copy},
                                       {"stall_seconds", m.stall},
                                       {"first_stall_seconds", m.first_stall},
                                       {"copied_seconds", m.copied},
                                       {"write_seconds", m.write},
                                       {"write_megabytes_per_second", megabytes / m.write},
                                       {"restore_seconds", m.restore},
                                       {"restore_megabytes_per_second", megabytes / m.restore}};
  format.print_object(json.dump());
  format.print_text(fmt::format(
      "{:.0f} MB in {} tensors\nstall      {:8.4f} s  ({:.2f} x one copy; first save {:.4f} "
      "s)\ncopied     {:8.4f} s  ({:.2f} x one copy)\nwrite      {:8.4f} s  {:.0f} MB/s, in "
      "the background\nrestore    {:8.4f} s  {:.0f} MB/s, every byte checked\n",
      megabytes, options.tensors, m.stall, m.stall / m.copy, m.first_stall, m.copied,
      m.copied / m.copy, m.write, megabytes / m.write, m.restore, megabytes / m.restore));
  return 0;
}

}  // namespace quintet
