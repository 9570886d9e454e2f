#include "apps/process/ranks.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <numeric>
#include <sstream>

#include "apps/process/signals.h"
#include "apps/process/version.h"
#include "kernels/device.h"
#include "runtime/base/formats/crc32c.h"
#include "runtime/base/hash.h"
#include "runtime/base/process/messages.h"
#include "runtime/device/devices.h"
#include "runtime/mesh/collectives/collectives_mpi.h"

namespace quintet {
namespace {

/// The text of the group's first rank, on all.
std::string text_of_first(const Group& group, const std::string& text) {
  const Group host = group.on_host();
  auto bytes = static_cast<int64_t>(text.size());
  host.broadcast(&bytes, 1, DType::i64, 0).wait();
  std::string result = group.rank() == 0 ? text : std::string(static_cast<size_t>(bytes), '\0');
  host.broadcast(result.data(), bytes, DType::u8, 0).wait();
  return result;
}

/// Collectives of their own, so that a save in the background does not meet those of training.
class Writers final : public HostGroup {
 public:
  Writers(std::unique_ptr<Comm> comm, Group group) : comm_(std::move(comm)), group_(group) {}
  int index() const override { return group_.rank(); }
  int count() const override { return group_.size(); }
  bool all_ok(bool ok) override {
    int32_t failed = ok ? 0 : 1;
    group_.all_reduce(&failed, 1, DType::i32, Reduction::max).wait();
    return failed == 0;
  }
  std::string of_first(const std::string& text) override { return text_of_first(group_, text); }
  void tell(int host, const std::string& text) override {
    const auto bytes = std::ssize(text);
    group_.send(&bytes, 1, DType::i64, host).wait();
    group_.send(text.data(), bytes, DType::u8, host).wait();
  }
  std::string hear(int host) override {
    int64_t bytes = 0;
    group_.receive(&bytes, 1, DType::i64, host).wait();
    std::string text(static_cast<size_t>(bytes), '\0');
    group_.receive(text.data(), bytes, DType::u8, host).wait();
    return text;
  }

 private:
  std::unique_ptr<Comm> comm_;
  Group group_;
};

constexpr const char* kOneMachine =
    "copies of a parameter would drift apart on them; use hosts of one kind with the same driver, "
    "MPI and NCCL "
    "(scontrol show node, nvidia-smi, lscpu), or make them alike (ONEDNN_MAX_CPU_ISA)";

/// Version and a checksum of this program.
std::string build_text() {
  std::ifstream program("/proc/self/exe", std::ios::binary);
  std::string piece(1 << 20, '\0');
  uint32_t crc = 0;
  while (program.read(piece.data(), static_cast<std::streamsize>(piece.size())).gcount() > 0)
    crc = crc32c(std::string_view(piece.data(), static_cast<size_t>(program.gcount())), crc);
  return fmt::format("quintet {}, checksum {:08x}", kVersion, crc);
}

Group first_ranks(Comm& comm, int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {&comm, std::move(ranks), "all"};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string joined(const std::vector<Ranks::Line>& lines, std::string Ranks::Line::*part) {
  std::string text;
  for (const Ranks::Line& line : lines) text += line.*part + "\n";
  return text;
}

}  // namespace

void RankFlags::add_init_timeout(CLI::App& app) {
  app.add_option("--init_timeout,--initialization_timeout", init_timeout,
                 "seconds until all ranks must have started")
      ->capture_default_str()
      ->group("Under mpirun or srun")
      ->check(CLI::Range(0, 1 << 30));
}

void RankFlags::add_to(CLI::App& app) {
  app.add_option("--collective_timeout", collective_timeout,
                 "seconds that a rank waits for the others before the job ends; 0: unlimited")
      ->capture_default_str()
      ->group("Under mpirun or srun")
      ->check(CLI::Range(0.0, 1e9));
  add_init_timeout(app);
  app.add_option("--check_replicas", check_replicas,
                 "steps between comparisons of replicated parameters over ranks; 0: never")
      ->capture_default_str()
      ->group("Under mpirun or srun")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_flag("--share_gpus", share_gpus,
               "ranks may have one GPU together, slowly: what they exchange goes through ordinary "
               "memory; else it is an error")
      ->group("Under mpirun or srun");
}

Ranks::Ranks(const RankFlags& flags) : flags_(flags), session_(flags.init_timeout) {}

void Ranks::agree_on(const std::string& what, const std::vector<Line>& lines,
                     const std::string& advice, ExitCode code) const {
  const std::string own = joined(lines, &Line::compared);
  if (session_.all_equal(lines.empty() ? std::nullopt : std::optional(fnv1a<uint64_t>(own))))
    return;
  // A few bytes a rank, then the lines of two of them.
  const std::vector<std::string> hashes =
      session_.gather(lines.empty() ? "" : fmt::format("{:016x}", fnv1a<uint64_t>(own)));
  const auto has_part = [](const std::string& hash) { return !hash.empty(); };
  const auto first = std::find_if(hashes.begin(), hashes.end(), has_part);
  const auto other = std::find_if(first, hashes.end(), [&](const std::string& hash) {
    return has_part(hash) && hash != *first;
  });
  const auto a = static_cast<size_t>(first - hashes.begin());
  const auto b = static_cast<size_t>(other - hashes.begin());
  const auto self = static_cast<size_t>(rank());
  const bool is_one = self == a || self == b;
  const auto compared = session_.gather(is_one ? own : "");
  const auto shown = session_.gather(is_one ? joined(lines, &Line::shown) : "");
  const std::vector<std::string> x = lines_of(compared[a]), y = lines_of(compared[b]);
  const auto at =
      static_cast<size_t>(std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first - x.begin());
  const auto line_of = [&](size_t rank) {
    const std::vector<std::string> all = lines_of(shown[rank]);
    return at < all.size() ? all[at] : "(nothing more)";
  };
  fail(code,
       "ranks were started with a different {}:\n  rank {} on {}: {}\n  rank {} on {}: {}\n{}",
       what, a, session_.hosts()[a], line_of(a), b, session_.hosts()[b], line_of(b), advice);
}

void Ranks::agree_on(const std::string& what, const std::string& text) const {
  std::vector<Line> lines{{}};  // of an empty text, too
  for (const std::string& line : lines_of(text)) lines.push_back({line, line});
  agree_on(what, lines, "start all of them with the same program, files and flags");
}

void Ranks::agree_on_program(const std::string& arguments) const {
  agree_on("build", build_text());
  agree_on("command line", arguments);
}

void Ranks::open(Device& device, int data_ranks) {
  data_ranks_ = data_ranks;
  if (flags_.share_gpus && leads() && !device.supports_nccl())
    print_warning("--share_gpus has no effect: the device is {}", device.kind());
  if (!session_.active()) return;
  if (rank() < size()) {
    const std::string own = fmt::format("{}; {}", arithmetic_of(device), carriers_of(device));
    agree_on("machine", {{own, own}}, kOneMachine, ExitCode::kEnvironment);
  } else {
    agree_on("machine", {}, kOneMachine, ExitCode::kEnvironment);
  }
  comm_ = open_mpi(session_, device,
                   {.timeout_seconds = flags_.collective_timeout,
                    .signalled = stop_signalled,
                    .init_timeout = flags_.init_timeout,
                    .share_gpus = flags_.share_gpus});
}

Group Ranks::group() const { return first_ranks(*comm_, size()); }

int64_t Ranks::highest(int64_t number) const {
  if (comm_ == nullptr) return number;
  first_ranks(comm_->host(), size()).all_reduce(&number, 1, DType::i64, Reduction::max).wait();
  return number;
}

std::string Ranks::of_leader(const std::string& text) const {
  return comm_ == nullptr ? text : text_of_first(first_ranks(comm_->host(), size()), text);
}

std::vector<std::string> Ranks::gather(const std::string& text) const {
  if (comm_ == nullptr) return {text};
  return gather_text(first_ranks(comm_->host(), size()), text);
}

std::shared_ptr<HostGroup> Ranks::writers() const {
  if (comm_ == nullptr) return nullptr;
  return writers_of(comm_->channel(), size());
}

std::shared_ptr<HostGroup> writers_of(std::unique_ptr<Comm> comm, int count) {
  const Group all = first_ranks(*comm, count);
  return std::make_shared<Writers>(std::move(comm), all);
}

}  // namespace quintet
