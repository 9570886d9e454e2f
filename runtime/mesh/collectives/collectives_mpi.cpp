#include "runtime/mesh/collectives/collectives_mpi.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "kernels/device.h"
#include "runtime/mesh/collectives/collectives_host.h"
#include "runtime/mesh/collectives/collectives_nccl.h"
#include "runtime/mesh/collectives/nccl_memory.h"
#include "runtime/mesh/collectives/watchdog.h"
#include "runtime/mpi/call.h"

namespace quintet {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 30;  // MPI counts are int
constexpr size_t kChannels = 4;
constexpr int kQuestionTag = 1, kAnswerTag = 2;

/// Notes of the watchdogs over a separate communicator. A note that was sent is not waited for:
/// its reader may be gone.
class MpiChannel final : public WatchChannel {
 public:
  explicit MpiChannel(MPI_Comm comm) : comm_(comm) {}
  void send(const Note& note) override {
    auto& text = *texts_.emplace_back(std::make_unique<std::string>(note.text));
    MPI_Request request;
    QT_MPI(MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_CHAR, note.rank,
                     note.question ? kQuestionTag : kAnswerTag, comm_, &request));
    QT_MPI(MPI_Request_free(&request));
    if (texts_.size() > 1000) texts_.erase(texts_.begin());
  }
  std::vector<Note> receive() override {
    std::vector<Note> notes;
    for (;;) {
      int found = 0, count = 0;
      MPI_Status status;
      QT_MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, &status));
      if (found == 0) return notes;
      QT_MPI(MPI_Get_count(&status, MPI_CHAR, &count));
      std::string text(static_cast<size_t>(count), '\0');
      QT_MPI(MPI_Recv(text.data(), count, MPI_CHAR, status.MPI_SOURCE, status.MPI_TAG, comm_,
                      MPI_STATUS_IGNORE));
      notes.push_back({status.MPI_SOURCE, status.MPI_TAG == kQuestionTag, std::move(text)});
    }
  }

 private:
  MPI_Comm comm_;
  std::vector<std::unique_ptr<std::string>> texts_;
};

/// The process ids of the ranks on this host that share our view of processes.
std::map<int, int> local_processes(const mpi::Session& session) {
  struct stat space {};
  stat("/proc/self/ns/pid", &space);
  const std::array<int64_t, 2> local = {getpid(), static_cast<int64_t>(space.st_ino)};
  std::vector<std::array<int64_t, 2>> all(static_cast<size_t>(session.size()));
  QT_MPI(MPI_Allgather(local.data(), 2, MPI_INT64_T, all.data(), 2, MPI_INT64_T, MPI_COMM_WORLD));
  std::map<int, int> processes;
  for (int rank = 0; rank < session.size(); ++rank) {
    const auto& [process, its_space] = all[static_cast<size_t>(rank)];
    const bool here = session.hosts()[static_cast<size_t>(rank)] == session.host() &&
                      its_space == local[1] && space.st_ino != 0;
    if (here && rank != session.rank()) processes[rank] = static_cast<int>(process);
  }
  return processes;
}

/// What the transports of a process share.
struct Job {
  Job(const mpi::Session& s, const MpiOptions& options) : rank(s.rank()), hosts(s.hosts()) {
    for (MPI_Comm& comm : comms) comm = duplicate();
    Watchdog::Options watch{
        options.timeout_seconds, options.signalled, [](const std::string& text) {
          std::fputs(("error: " + text +
                      "\nending the job; the newest checkpoint is whole: start again to go on\n")
                         .c_str(),
                     stderr);
          mpi::Session::fail(ExitCode::kPeer);
        }};
    watchdog = std::make_unique<Watchdog>(std::move(watch), rank, hosts, local_processes(s),
                                          std::make_unique<MpiChannel>(duplicate()));
  }
  static MPI_Comm duplicate() {
    MPI_Comm comm;
    QT_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    QT_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    return comm;
  }
  int rank;
  std::vector<std::string> hosts;
  std::array<MPI_Comm, kChannels> comms{};
  std::unique_ptr<Watchdog> watchdog;
};

/// A number in 0 .. 32767, the tags every MPI has, for what ranks must do together.
int tag_of(const Activity& activity) {
  std::string text = activity.collective;
  if (text == "receive") text = "send";
  text += " " + activity.group + " " + std::to_string(activity.count);
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return static_cast<int>((hash ^ (hash >> 15)) & 32767u);
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::shared_ptr<Job> job, std::shared_ptr<size_t> channels)
      : job_(std::move(job)), channels_(std::move(channels)), channel_((*channels_)++) {
    QT_ASSERT(channel_ < kChannels);
  }
  int rank() const override { return job_->rank; }
  const std::vector<std::string>& hosts() const override { return job_->hosts; }
  std::unique_ptr<Transport> channel() override {
    return std::make_unique<MpiTransport>(job_, channels_);
  }

  void exchange(std::span<const Message> sends, std::span<const Message> receives,
                const Activity& activity) override {
    const Watchdog::Waiting waiting(*job_->watchdog, activity, channel_ > 0);
    const MPI_Comm comm = job_->comms[channel_];
    const int tag = tag_of(activity);
    struct Expected {
      int rank;
      int bytes;
    };
    std::vector<Expected> expected;
    std::vector<MPI_Request> requests;
    for (const Message& m : receives)
      for_pieces(m, [&](void* data, int bytes) {
        // Any tag: a rank that does something else is found, not waited for.
        QT_MPI(
            MPI_Irecv(data, bytes, MPI_BYTE, m.rank, MPI_ANY_TAG, comm, &requests.emplace_back()));
        expected.push_back({m.rank, bytes});
      });
    for (const Message& m : sends)
      for_pieces(m, [&](void* data, int bytes) {
        QT_MPI(MPI_Isend(data, bytes, MPI_BYTE, m.rank, tag, comm, &requests.emplace_back()));
      });
    std::vector<MPI_Status> states(requests.size());
    const int result = wait_all(requests, states);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (result != MPI_SUCCESS && states[i].MPI_ERROR == MPI_ERR_PENDING) continue;
      int bytes = 0;
      QT_MPI(MPI_Get_count(&states[i], MPI_BYTE, &bytes));
      QT_CHECK_AS(ExitCode::kPeer, states[i].MPI_TAG == tag && bytes == expected[i].bytes,
                  "collectives out of order: {} is in {}, {} on {} in another ({} bytes, {} "
                  "expected)",
                  rank(), to_string(activity), expected[i].rank,
                  hosts()[static_cast<size_t>(expected[i].rank)], bytes, expected[i].bytes);
    }
    mpi::check(result, "MPI_Testall");
  }

 private:
  template <typename F>
  static void for_pieces(const Message& m, F f) {
    for (int64_t begin = 0; begin < m.bytes; begin += kPieceBytes)
      f(static_cast<std::byte*>(m.data) + begin,
        static_cast<int>(std::min(kPieceBytes, m.bytes - begin)));
  }

  /// Polls: at first without rest, then less and less often, so that a core that computes for
  /// another rank is left to it.
  static int wait_all(std::vector<MPI_Request>& requests, std::vector<MPI_Status>& states) {
    for (int64_t round = 0;; ++round) {
      int done = 0;
      const int result =
          MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, states.data());
      if (done != 0 || result != MPI_SUCCESS) return result;
      if (round < 20) continue;
      const timespec rest{0, std::min<int64_t>(round * 100, 200'000)};
      nanosleep(&rest, nullptr);
    }
  }

  std::shared_ptr<Job> job_;
  std::shared_ptr<size_t> channels_;  // given out
  size_t channel_;
};

/// One rank: nothing ever travels.
class NoTransport final : public Transport {
 public:
  explicit NoTransport(std::string host) : hosts_{std::move(host)} {}
  int rank() const override { return 0; }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  void exchange(std::span<const Message>, std::span<const Message>, const Activity&) override {}
  std::unique_ptr<Transport> channel() override {
    return std::make_unique<NoTransport>(hosts_.front());
  }

 private:
  std::vector<std::string> hosts_;
};

}  // namespace

bool each_has_its_gpu(const std::vector<std::string>& gpus, bool share_gpus) {
  std::map<std::string, size_t> first;  // rank
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    if (gpus[rank].empty()) continue;
    const auto [other, is_new] = first.try_emplace(gpus[rank], rank);
    if (is_new) continue;
    QT_CHECK(share_gpus,
             "ranks {} and {} have the same GPU, {}; start as many ranks a host as it has GPUs "
             "(scripts/launch, or srun with --ntasks-per-node and --gpus-per-node alike), or pass "
             "--share_gpus, which is slow: what they exchange goes through ordinary memory",
             other->second, rank, gpus[rank]);
    return false;
  }
  return first.size() > 1;  // a single GPU has nobody to talk to
}

std::unique_ptr<Comm> open_mpi(const mpi::Session& session, Device& device, MpiOptions options) {
  QT_ASSERT(session.active());
  const auto job = [&] {
    const mpi::Session::TimeLimit limit(session, "to open their channels");
    return std::make_shared<Job>(session, options);
  }();
  auto transport = std::make_unique<MpiTransport>(job, std::make_shared<size_t>(0));
#ifdef QUINTET_WITH_NCCL
  const bool gpu = device.supports_nccl();
  const auto gpus =
      session.gather(gpu ? fmt::format("{} of {}", gpu_identity(), session.host()) : "");
  if (each_has_its_gpu(gpus, options.share_gpus) && gpu) {
    NcclOptions nccl{.init_timeout = static_cast<double>(options.init_timeout)};
    for (size_t rank = 0; rank < gpus.size(); ++rank)
      if (!gpus[rank].empty()) nccl.ranks.push_back(static_cast<int>(rank));
    allocate_by_nccl(device.memory());
    return open_nccl(host_comm(std::move(transport), Device::cpu()), *job->watchdog, device,
                     std::move(nccl));
  }
#endif
  return host_comm(std::move(transport), device);
}

std::string carriers_of(const Device& device) {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  QT_MPI(MPI_Get_library_version(text.data(), &length));
  const std::string_view version(text.data(), static_cast<size_t>(length));
  std::string carriers(version.substr(0, version.find_first_of(",\n")));
#ifdef QUINTET_WITH_NCCL
  if (device.supports_nccl()) carriers += ", NCCL " + nccl_version();
#else
  static_cast<void>(device);
#endif
  return carriers;
}

std::unique_ptr<Comm> open_single(Device& device) {
  return host_comm(std::make_unique<NoTransport>("localhost"), device);
}

}  // namespace quintet
