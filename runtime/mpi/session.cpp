#include "runtime/mpi/session.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <numeric>

#include "runtime/base/process/messages.h"
#include "runtime/mpi/call.h"
#include "runtime/mpi/launcher.h"

namespace quintet::mpi {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// MPI_Init and MPI_Abort may themselves hang; an alarm ends them.
void end_at_alarm(const std::string& message, ExitCode code, unsigned seconds) {
  static std::string text;
  static int status;
  alarm(0);
  text = message;
  status = static_cast<int>(code);
  std::signal(SIGALRM, [](int) {
    const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
    static_cast<void>(ignored);
    _exit(status);
  });
  alarm(seconds);
}

/// srun without PMI: its tasks are jobs of one each, which may be meant.
void warn_of_tasks_without_pmi() {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (tasks == nullptr || std::atoi(tasks) < 2) return;
  print_warning(
      "srun started {} tasks that do not know of each other, and this one is a job of "
      "its own; for ranks of one job: srun --mpi=pmix",
      tasks);
}

}  // namespace

#ifdef __SANITIZE_ADDRESS__
/// Open MPI leaves its plugins' memory behind and unloads them, so that no suppression finds it.
extern "C" int __lsan_is_turned_off() { return launched(); }
#endif

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail(ExitCode::kPeer, "MPI: {}: {}", std::string(text.data(), static_cast<size_t>(length)),
       std::string(call).substr(0, 80));
}

constexpr std::array kMarksOfRanks = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"};

bool launched() {
  for (const char* name : kMarksOfRanks)
    if (std::getenv(name) != nullptr) return true;
  return false;
}

void leave_job() {
  for (const char* name : kMarksOfRanks) unsetenv(name);
}

Session::TimeLimit::TimeLimit(const Session& session, const std::string& to) {
  const std::string self =
      session.active_ ? fmt::format("rank {} on {}", session.rank_, session.host()) : "a rank";
  end_at_alarm(fmt::format("error: MPI: not all ranks came {} in time: {} has waited {} s "
                           "(--init_timeout)\n",
                           to, self, session.timeout_seconds_),
               ExitCode::kEnvironment, static_cast<unsigned>(session.timeout_seconds_));
}
Session::TimeLimit::~TimeLimit() { alarm(0); }

Session::Session(int timeout_seconds) : timeout_seconds_(timeout_seconds) {
  hosts_ = {host_name()};
  if (!launched()) {
    warn_of_tasks_without_pmi();
    return;
  }
  const TimeLimit limit(*this, "to the start");
  int level = 0;
  QT_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
  QT_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  active_ = true;
  QT_CHECK_AS(ExitCode::kEnvironment, level == MPI_THREAD_MULTIPLE,
              "MPI: this library has no MPI_THREAD_MULTIPLE, which quintet needs; install another "
              "one (Debian: openmpi-bin)");
  int size = 1;
  QT_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  QT_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  std::array<char, 256> local{};
  const std::string name = hosts_.front();
  std::copy(name.begin(), name.end(), local.begin());
  std::vector<std::array<char, 256>> all(static_cast<size_t>(size));
  QT_MPI(MPI_Allgather(local.data(), 256, MPI_CHAR, all.data(), 256, MPI_CHAR, MPI_COMM_WORLD));
  hosts_.clear();
  for (const auto& host_of_rank : all) hosts_.emplace_back(host_of_rank.data());
  const auto end = hosts_.begin() + rank_;
  local_rank_ = static_cast<int>(std::count(hosts_.begin(), end, host()));
  local_size_ = static_cast<int>(std::count(hosts_.begin(), hosts_.end(), host()));
}

Session::~Session() {
  if (!active_) return;
  if (std::uncaught_exceptions() > 0) return;  // main reports it and calls fail
  release_launcher();
  MPI_Finalize();
}

std::vector<std::string> Session::gather(const std::string& text) const {
  if (!active_) return {text};
  const TimeLimit limit(*this, "to compare how they were started");
  const int local = static_cast<int>(text.size());
  std::vector<int> sizes(hosts_.size()), offsets(hosts_.size());
  QT_MPI(MPI_Allgather(&local, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD));
  std::exclusive_scan(sizes.begin(), sizes.end(), offsets.begin(), 0);
  std::string all(static_cast<size_t>(offsets.back() + sizes.back()), '\0');
  QT_MPI(MPI_Allgatherv(text.data(), local, MPI_CHAR, all.data(), sizes.data(), offsets.data(),
                        MPI_CHAR, MPI_COMM_WORLD));
  std::vector<std::string> texts;
  for (size_t i = 0; i < sizes.size(); ++i)
    texts.push_back(all.substr(static_cast<size_t>(offsets[i]), static_cast<size_t>(sizes[i])));
  return texts;
}

bool Session::all_equal(std::optional<uint64_t> number) const {
  if (!active_) return true;
  const TimeLimit limit(*this, "to compare how they were started");
  // The greatest number, and the complement of the least.
  std::array<uint64_t, 2> most{};
  const std::array<uint64_t, 2> local{number.value_or(0), number ? ~*number : 0};
  QT_MPI(MPI_Allreduce(local.data(), most.data(), 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD));
  return most[0] == ~most[1] || (most[0] == 0 && most[1] == 0);
}

std::optional<int> Session::rank_of_process() {
  int started = 0, ended = 0, rank = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  if (started == 0 || ended != 0) return std::nullopt;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

void Session::fail(ExitCode code) {
  end_at_alarm("", code, 3);
  release_launcher();
  if (rank_of_process()) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  _exit(static_cast<int>(code));
}

}  // namespace quintet::mpi
