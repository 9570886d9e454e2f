#include "data/service/peer_chunks.h"

#include <exception>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/thread.h"

namespace quintet::data {

PeerChunks::PeerChunks(Mailbox& mail, int ranks, int index, std::vector<std::string> hosts,
                       int threads)
    : mail_(mail),
      hosts_(std::move(hosts)),
      exchange_(mail, 0, {hosts_.begin(), hosts_.begin() + ranks}, index, threads) {
  poller_ = start_thread("to take data from other ranks", [this] { run_poller(); });
}

PeerChunks::~PeerChunks() {
  if (std::uncaught_exceptions() > 0)  // the job is about to be ended
    abandoned_ = true;
  else
    exchange_.leave();
  leaving_ = true;
  poller_.join();
}

void PeerChunks::run_poller() {
  constexpr auto kToLeave = std::chrono::seconds(10);
  std::optional<Clock::time_point> leaving_since;
  try {
    while (!abandoned_) {
      while (auto message = mail_.poll()) exchange_.receive(std::move(*message));
      if (leaving_) {
        const auto now = Clock::now();
        if (!leaving_since) leaving_since = now;
        if (exchange_.all_left() && mail_.empty()) return;
        if (now - *leaving_since > kToLeave) return;
      }
      std::this_thread::sleep_for(kPollPause);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "data: {}\n", error.what());
    exchange_.cancel();
  }
}

std::string PeerChunks::held_up_by() {
  const int rank = exchange_.awaits();
  return rank < 0 ? "" : fmt::format("rank {} ({})", rank, hosts_.at(static_cast<size_t>(rank)));
}

}  // namespace quintet::data
