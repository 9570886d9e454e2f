#include "runtime/mpi/session.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <numeric>

#include "runtime/mpi/call.h"

namespace quintet::mpi {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// MPI_Init and MPI_Abort may themselves hang; an alarm ends them.
void end_at_alarm(const char* message, ExitCode code, unsigned seconds) {
  static const char* text;
  static int status;
  text = message;
  status = static_cast<int>(code);
  std::signal(SIGALRM, [](int) {
    const ssize_t ignored = write(STDERR_FILENO, text, std::char_traits<char>::length(text));
    static_cast<void>(ignored);
    _exit(status);
  });
  alarm(seconds);
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

bool launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

Session::Session(int timeout_seconds) {
  hosts_ = {host_name()};
  if (!launched()) return;
  end_at_alarm("error: MPI: not all ranks came to the start in time (--init_timeout)\n",
               ExitCode::kEnvironment, static_cast<unsigned>(timeout_seconds));
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
  alarm(0);
  hosts_.clear();
  for (const auto& host_of_rank : all) hosts_.emplace_back(host_of_rank.data());
  const auto end = hosts_.begin() + rank_;
  local_rank_ = static_cast<int>(std::count(hosts_.begin(), end, host()));
  local_size_ = static_cast<int>(std::count(hosts_.begin(), hosts_.end(), host()));
}

Session::~Session() {
  if (!active_) return;
  if (std::uncaught_exceptions() > 0) return;  // main reports it and calls fail
  MPI_Finalize();
}

std::vector<std::string> Session::gather(const std::string& text) const {
  if (!active_) return {text};
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
  if (rank_of_process()) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  _exit(static_cast<int>(code));
}

}  // namespace quintet::mpi
