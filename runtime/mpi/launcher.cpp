#include "runtime/mpi/launcher.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/base/process/spawn.h"

namespace quintet::mpi {
namespace {

std::mutex g_mutex;
int g_held = -1;  // as long as it is open, the launcher stands still

std::filesystem::path place_of(pid_t process) {
  return std::filesystem::path("/proc") / std::to_string(process);
}

pid_t parent_of(pid_t process) {
  std::ifstream file(place_of(process) / "stat");
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(')');  // of the name, which may hold anything
  return end == std::string::npos ? 0 : std::atoi(text.c_str() + std::min(end + 4, text.size()));
}

/// Slurm's daemon waits before it kills, and serves others: it is not stopped.
bool is_mpirun(pid_t process) {
  std::string name;
  std::ifstream(place_of(process) / "comm") >> name;
  for (const char* known : {"mpirun", "mpiexec", "orterun", "prterun"})
    if (name.starts_with(known)) return true;
  return false;
}

bool started_this(pid_t process) {
  for (pid_t p = parent_of(getpid()); p > 1; p = parent_of(p))
    if (p == process) return true;
  return false;
}

int64_t children_of(pid_t process) {
  int64_t count = 0;
  std::error_code ignored;
  for (const auto& task :
       std::filesystem::directory_iterator(place_of(process) / "task", ignored)) {
    std::ifstream file(task.path() / "children");
    for (pid_t child; file >> child;) ++count;
  }
  return count;
}

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

/// Of a process that stops `launcher` and has it go on when its standard input ends.
bool start_keeper(pid_t launcher, int input) {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return false;
  const pid_t keeper =
      spawn({"/bin/sh", "-c", "kill -STOP $0; read -r _; kill -CONT $0", std::to_string(launcher)},
            {input, nowhere, nowhere});
  close(nowhere);
  return keeper > 0;
}

}  // namespace

bool hold_launcher(pid_t sender) {
  const std::lock_guard lock(g_mutex);
  const char *ranks = std::getenv("OMPI_COMM_WORLD_SIZE"),
             *here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (sender <= 1 || ranks == nullptr || here == nullptr || g_held >= 0) return false;
  // On other hosts a rank may be gone, and nobody here knows.
  if (std::string_view(ranks) != here) return false;
  // That of Open MPI 5, which names itself, kills 0.2 s later whatever it is told.
  if (is_set("OMPI_MCA_odls_base_sigkill_timeout") && !is_set("OMPI_VERSION")) return false;
  if (!is_mpirun(sender) || !started_this(sender) || children_of(sender) < std::atoll(ranks))
    return false;
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) return false;
  const bool started = start_keeper(sender, pipe[0]);
  close(pipe[0]);
  if (started)
    g_held = pipe[1];
  else
    close(pipe[1]);
  return started;
}

void release_launcher() {
  const std::lock_guard lock(g_mutex);
  if (g_held >= 0) close(g_held);
  g_held = -1;
}

}  // namespace quintet::mpi
