#include "apps/finetune/finetune_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include "apps/config/gin_session.h"
#include "apps/train/train_memory.h"
#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/base/process/messages.h"

namespace quintet {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

/// The number in a file of the kernel's; unlimited if there is none.
int64_t number_in(const std::string& file, const std::string& after = "") {
  std::ifstream in(file);
  for (std::string word; !after.empty() && in >> word && word != after;) continue;
  int64_t number = 0;
  return in >> number ? number : kUnlimited;
}

/// That the machine, the process's group and its own limits leave.
int64_t free_bytes() {
  const Device& device = Device::current();
  if (!device.is_cpu()) return device.memory_bytes() > 0 ? device.memory_bytes() : kUnlimited;
  const int64_t kilobytes = number_in("/proc/meminfo", "MemAvailable:");
  const int64_t most = number_in("/sys/fs/cgroup/memory.max");
  const int64_t used = most == kUnlimited ? 0 : number_in("/sys/fs/cgroup/memory.current");
  return std::min(
      {kilobytes == kUnlimited ? kUnlimited : kilobytes * 1024, most - used, memory_left()});
}

/// Of a step whose batch has `parts` parts of `rows`; more than two take no more than two.
int64_t bytes_of_run(const std::string& text, const gin::CommandLine& draft, int64_t rows,
                     int64_t parts) {
  gin::CommandLine line = draft;
  parts = std::min<int64_t>(parts, 2);
  line.bindings.push_back(fmt::format("trainer.Trainer.num_microbatches = {}", parts));
  line.bindings.push_back(fmt::format("train/utils.DatasetConfig.batch_size = {}", rows * parts));
  MemoryNeed need;
  GinSession* running = nullptr;
  const auto simulate = [&](const gin::Arguments& arguments) -> gin::Value {
    need = training_need(*running, train_config_from(arguments), 1);
    return {};
  };
  GinSession session(line,
                     {.train = simulate, .evaluate = {}, .infer = {}, .save = {}, .precompile = {}},
                     {.main_modules = {"t5x.train"}, .text = text});
  running = &session;
  session.config().call("t5x.train.train");
  return Device::current().is_cpu() ? need.bytes() : need.tensors;
}

}  // namespace

int64_t microbatches_that_fit(const std::string& text, const gin::CommandLine& draft,
                              int64_t batch_size) {
  constexpr double kShare = 0.8, kMib = 1 << 20;  // what a simulation does not know has the rest
  const int64_t free = free_bytes();
  if (free == kUnlimited) return 1;
  const auto most = static_cast<int64_t>(kShare * static_cast<double>(free));
  int64_t bytes = 0;
  for (int64_t parts = 1; parts <= batch_size; ++parts) {
    if (batch_size % parts != 0) continue;
    bytes = bytes_of_run(text, draft, batch_size / parts, parts);
    if (bytes > most) continue;
    if (parts > 1)
      fmt::print(
          stderr,
          "{} microbatches: with them a step needs {:.0f} MiB, of {:.0f} MiB that are free\n",
          parts, static_cast<double>(bytes) / kMib, static_cast<double>(free) / kMib);
    return parts;
  }
  print_warning(
      "even row by row a step needs {:.0f} MiB, of {:.0f} MiB that are free; lower "
      "--max_input_length and --max_target_length, or take a smaller model",
      static_cast<double>(bytes) / kMib, static_cast<double>(free) / kMib);
  return batch_size;
}

}  // namespace quintet
