#include "data/service/unit_exchange.h"

#include "runtime/base/check.h"
#include "runtime/base/clock.h"

namespace quintet::data {
namespace {

constexpr size_t kIdBytes = 2 * sizeof(int64_t);

Unit cancelled() {
  return {{}, std::make_exception_ptr(Error(ExitCode::kPeer, "data service: the run has ended"))};
}

}  // namespace

UnitExchange::UnitExchange(Mailbox& mail, int first, int ranks, int index, int threads)
    : mail_(mail),
      first_(first),
      ranks_(ranks),
      index_(index),
      threads_(std::make_unique<UnitThreads>(threads)) {}

int64_t UnitExchange::ahead() const { return threads_->ahead() * ranks_; }

std::future<Unit> UnitExchange::run(int64_t stream, int64_t unit, const Origin& origin,
                                    std::function<Unit()> make) {
  const Id id{stream, unit};
  if (owner(id) == index_)
    return threads_->run(stream, unit, origin, [this, id, make = std::move(make)] {
      Unit made = make();
      send_to_others(id, made);
      return made;
    });
  const std::lock_guard lock(mutex_);
  Awaited awaited;
  awaited.origin = &origin;
  std::future<Unit> result = awaited.promise.get_future();
  const auto here = early_.find(id);
  if (here != early_.end()) {
    awaited.promise.set_value(unit_from_wire(here->second, origin));
    early_.erase(here);
  } else if (cancelled_) {
    awaited.promise.set_value(cancelled());
  } else {
    awaited_.emplace(id, std::move(awaited));
  }
  return result;
}

void UnitExchange::send_to_others(Id id, const Unit& unit) {
  if (ranks_ == 1) return;
  std::string bytes(kIdBytes, '\0');
  std::memcpy(bytes.data(), &id.first, sizeof id.first);
  std::memcpy(bytes.data() + sizeof id.first, &id.second, sizeof id.second);
  bytes += to_wire(unit);
  for (int i = 0; i < ranks_; ++i)
    if (i != index_) mail_.send(first_ + i, Tag::unit, bytes);
}

void UnitExchange::waits_for(int64_t stream, std::optional<int64_t> unit) {
  const std::lock_guard lock(mutex_);
  needed_.reset();
  if (!unit) return;
  needed_ = Id{stream, *unit};
  needed_since_ = Clock::now();
}

int UnitExchange::awaits() {
  constexpr auto kMoment = std::chrono::milliseconds(500);
  const std::lock_guard lock(mutex_);
  const bool long_since = needed_ && Clock::now() - needed_since_ > kMoment;
  return long_since && owner(*needed_) != index_ ? owner(*needed_) : -1;
}

void UnitExchange::arrived(std::string bytes) {
  Id id;
  std::memcpy(&id.first, bytes.data(), sizeof id.first);
  std::memcpy(&id.second, bytes.data() + sizeof id.first, sizeof id.second);
  bytes.erase(0, kIdBytes);
  const std::lock_guard lock(mutex_);
  const auto awaited = awaited_.find(id);
  if (awaited == awaited_.end()) {
    if (!cancelled_) early_.emplace(id, std::move(bytes));
    return;
  }
  awaited->second.promise.set_value(unit_from_wire(bytes, *awaited->second.origin));
  awaited_.erase(awaited);
}

void UnitExchange::take(Letter letter) {
  if (letter.tag == Tag::units_end)
    ++left_;
  else
    arrived(std::move(letter.bytes));
}

void UnitExchange::leave() {
  cancel();
  threads_.reset();
  for (int i = 0; i < ranks_; ++i)
    if (i != index_) mail_.send(first_ + i, Tag::units_end, "");
}

void UnitExchange::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (auto& [id, awaited] : awaited_) awaited.promise.set_value(cancelled());
  awaited_.clear();
}

}  // namespace quintet::data
