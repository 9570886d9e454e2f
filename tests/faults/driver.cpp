// A training run without the training: restores the newest checkpoint, then saves one a step.
//
//   checkpoint_driver MODEL_DIR sync|async|keep_all STEPS [hold]
//
// sync and async keep two steps; keep_all saves in the foreground and deletes nothing.
// stdout, unbuffered: "restored N", then "saved N" or "failed N: why". Exit codes as the real command.

#include "tests/faults/driver.h"

#include <unistd.h>

#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "runtime/base/files/atomic_file.h"

namespace quintet {
namespace {

void say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(97);
}

void save(CheckpointManager& manager, int64_t step, bool in_background) {
  const HostArrays state = testing::state_at(step);
  std::vector<TensorSlice> slices;
  for (const auto& [name, array] : state) slices.push_back(whole_slice(name, array));
  try {
    if (in_background) {
      manager.save_async(step, slices, testing::json_at(step));
      say(fmt::format("started {}", step));
      manager.poll();
    } else {
      manager.save(step, slices, testing::json_at(step));
      say(fmt::format("saved {}", step));
    }
  } catch (const Error& error) {
    say(fmt::format("failed {}: {}", step, error.what()));
    if (in_background || error.code() != ExitCode::kDisk) throw;
  }
}

int run(const std::filesystem::path& model_dir, const std::string& mode, int64_t steps, bool hold) {
  const FolderLock lock(model_dir);
  if (hold) {
    say("holding");
    ::pause();
  }
  CheckpointManager manager(lock, {.keep = mode == "keep_all" ? 0 : 2});
  int64_t step = 0;
  if (const auto latest = manager.latest_whole()) {
    testing::check_state(read_checkpoint(latest->folder(), Verify::size));
    step = latest->step();
  }
  say(fmt::format("restored {}", step));
  atomic_write_file(model_dir / "config.gin", "steps = 1\n");
  for (int64_t last = step + steps; step < last;) save(manager, ++step, mode == "async");
  manager.finish();
  say(fmt::format("finished {}", step));
  return 0;
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  try {
    return quintet::run(argv[1], argv[2], std::stoll(argv[3]), argc > 4);
  } catch (const quintet::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
