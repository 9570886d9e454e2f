#include "apps/ranks.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <numeric>
#include <sstream>

#include "apps/signals.h"
#include "apps/version.h"
#include "kernels/device.h"
#include "runtime/base/crc32c.h"
#include "runtime/mesh/collectives_mpi.h"

namespace quintet {
namespace {

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

 private:
  std::unique_ptr<Comm> comm_;
  Group group_;
};

Group first_ranks(Comm& comm, int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {&comm, std::move(ranks), "all"};
}

/// The first line in which two texts differ: {"a = 1", "a = 2"}.
std::pair<std::string, std::string> first_difference(const std::string& one,
                                                     const std::string& other) {
  std::istringstream a(one), b(other);
  std::string x, y;
  for (;;) {
    const bool more_x = static_cast<bool>(std::getline(a, x));
    const bool more_y = static_cast<bool>(std::getline(b, y));
    if (!more_x) x = "(nothing more)";
    if (!more_y) y = "(nothing more)";
    if (x != y || (!more_x && !more_y)) return {x, y};
  }
}

}  // namespace

void RankFlags::add_to(CLI::App& app) {
  app.add_option(
         "--collective_timeout", collective_timeout,
         "under mpirun: seconds that a rank waits for the others before the job ends; 0: for "
         "ever")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--init_timeout", init_timeout, "seconds until all ranks must have started")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option(
         "--check_replicas", check_replicas,
         "under mpirun: every so many steps ranks compare what they hold copies of; 0: never")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
}

Ranks::Ranks(const RankFlags& flags) : flags_(flags), session_(flags.init_timeout) {}

void Ranks::agree_on(const std::string& what, const std::string& text) const {
  const std::vector<std::string> texts = session_.gather(text);
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const auto [first, other] = first_difference(texts[0], texts[rank]);
    fail(ExitCode::kUsage,
         "ranks were started with a different {}:\n  rank 0 on {}: {}\n  rank {} on {}: {}\nstart "
         "all of them with the same program, files and flags",
         what, session_.hosts()[0], first, rank, session_.hosts()[rank], other);
  }
}

void Ranks::open(Device& device, int data_ranks) {
  data_ranks_ = data_ranks;
  if (!session_.active()) return;
  comm_ = open_mpi(session_, device,
                   {.timeout_seconds = flags_.collective_timeout, .signalled = stop_signalled});
}

Group Ranks::group() const { return first_ranks(*comm_, size()); }

int64_t Ranks::highest(int64_t number) const {
  if (comm_ == nullptr) return number;
  first_ranks(comm_->host(), size()).all_reduce(&number, 1, DType::i64, Reduction::max).wait();
  return number;
}

std::string Ranks::of_leader(const std::string& text) const {
  return gather(leads() ? text : "").front();
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

std::string build_text() {
  std::ifstream program("/proc/self/exe", std::ios::binary);
  std::string piece(1 << 20, '\0');
  uint32_t crc = 0;
  while (program.read(piece.data(), static_cast<std::streamsize>(piece.size())).gcount() > 0)
    crc = crc32c(std::string_view(piece.data(), static_cast<size_t>(program.gcount())), crc);
  return fmt::format("quintet {}, checksum {:08x}", kVersion, crc);
}

}  // namespace quintet
