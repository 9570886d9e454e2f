#include "runtime/mesh/collectives/collectives.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/execution_context.h"

namespace quintet {

Pending& Pending::operator=(Pending&& other) noexcept {
  std::swap(wait_, other.wait_);
  return *this;
}
Pending::~Pending() {
  try {
    wait();
  } catch (const std::exception&) {  // the next collective, or the watchdog, says it
  }
}
void Pending::wait() {
  const auto wait = std::exchange(wait_, nullptr);
  if (!wait) return;
  double* const waited = ExecutionContext::current().waited;
  if (waited == nullptr) return wait();
  const auto start = Clock::now();
  {  // those that it waits for in turn are part of it
    const ContextMember<&ExecutionContext::waited> not_twice(static_cast<double*>(nullptr));
    wait();
  }
  *waited += seconds_since(start);
}

void Traffic::add(const std::string& collective, const std::string& group, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  Entry& entry = table_[{collective, group}];
  ++entry.calls;
  entry.bytes += bytes;
}
void Traffic::add(const Table& table, int64_t times) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, more] : table) {
    Entry& entry = table_[key];
    entry.calls += times * more.calls;
    entry.bytes += times * more.bytes;
    if (entry == Entry{}) table_.erase(key);
  }
}

Traffic::Table Traffic::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}
void Traffic::reset() {
  const std::lock_guard lock(mutex_);
  table_.clear();
  messages_ = 0;
}
int64_t Traffic::sent(const std::string& collective, int64_t bytes, int n) {
  return (collective == "all_reduce" ? 2 : 1) * bytes * (n - 1) / n;
}

int64_t total_count(const CollectiveArrays& arrays) {
  int64_t total = 0;
  for (const CollectiveArray& array : arrays) total += array.count;
  return total;
}

Group Comm::world() {
  std::vector<int> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {this, std::move(ranks), "world"};
}

Group::Group(Comm* comm, std::vector<int> ranks, std::string name)
    : comm_(comm), ranks_(std::move(ranks)), name_(std::move(name)) {
  QT_ASSERT(comm != nullptr || ranks_.size() == 1);
  if (comm == nullptr) return;
  const auto self = std::find(ranks_.begin(), ranks_.end(), comm->rank());
  QT_ASSERT(self != ranks_.end());
  self_ = static_cast<int>(self - ranks_.begin());
}

/// Whether nothing has to travel; then the result is copied.
bool Group::alone(const void* from, void* to, int64_t count, DType dtype) const {
  if (size() > 1 && count > 0) return false;
  Device& device = comm_ == nullptr ? Device::current() : comm_->device();
  if (from != to && count > 0) device.copy(to, from, count * size_of(dtype));
  return true;
}

void Group::record(const char* collective, int64_t bytes) const {
  comm_->traffic().add(collective, name_, Traffic::sent(collective, bytes, size()));
}

/// A call over arrays of `element` bytes for each of their counts.
void Group::record(const char* collective, const CollectiveArrays& arrays, int64_t element) const {
  int64_t sent = 0;
  for (const CollectiveArray& array : arrays)
    sent += Traffic::sent(collective, array.count * element, size());
  comm_->traffic().add(collective, name_, sent);
}

/// The same of several.
bool Group::alone(const CollectiveArrays& arrays, DType dtype) const {
  if (size() > 1 && total_count(arrays) > 0) return false;
  for (const auto& [from, to, count] : arrays) alone(from, to, count, dtype);
  return true;
}

Pending Group::all_reduce(const CollectiveArrays& arrays, DType dtype, Reduction how) const {
  if (alone(arrays, dtype)) return {};
  record("all_reduce", arrays, size_of(dtype));
  return comm_->all_reduce(members(), arrays, dtype, how);
}
Pending Group::all_gather(const CollectiveArrays& arrays, DType dtype) const {
  if (alone(arrays, dtype)) return {};
  record("all_gather", arrays, size() * size_of(dtype));
  return comm_->all_gather(members(), arrays, dtype);
}
Pending Group::reduce_scatter(const CollectiveArrays& arrays, DType dtype, Reduction how) const {
  if (alone(arrays, dtype)) return {};
  record("reduce_scatter", arrays, size() * size_of(dtype));
  return comm_->reduce_scatter(members(), arrays, dtype, how);
}
Pending Group::all_reduce(const void* from, void* to, int64_t count, DType dtype,
                          Reduction how) const {
  return all_reduce({{from, to, count}}, dtype, how);
}
Pending Group::all_gather(const void* from, void* to, int64_t count, DType dtype) const {
  return all_gather({{from, to, count}}, dtype);
}
Pending Group::reduce_scatter(const void* from, void* to, int64_t count, DType dtype,
                              Reduction how) const {
  return reduce_scatter({{from, to, count}}, dtype, how);
}
Pending Group::all_to_all(const void* from, void* to, int64_t count, DType dtype) const {
  if (alone(from, to, count, dtype)) return {};
  record("all_to_all", size() * count * size_of(dtype));
  return comm_->all_to_all(members(), from, to, count, dtype);
}
Pending Group::exchange(const void* from, Slices sends, void* to, Slices receives, int64_t count,
                        DType dtype) const {
  QT_ASSERT(size() > 1);
  record("all_to_all", count * size_of(dtype));
  return comm_->exchange(members(), from, std::move(sends), to, std::move(receives), count, dtype);
}
Pending Group::broadcast(void* data, int64_t count, DType dtype, int root) const {
  if (alone(data, data, count, dtype)) return {};
  record("broadcast", count * size_of(dtype));
  return comm_->broadcast(members(), data, count, dtype, root);
}
Pending Group::send(const void* data, int64_t count, DType dtype, int to) const {
  QT_ASSERT(to != self_ && to < size());
  if (count == 0) return {};
  comm_->traffic().add("send", name_, count * size_of(dtype));
  return comm_->send(members(), data, count, dtype, to);
}
Pending Group::receive(void* data, int64_t count, DType dtype, int from) const {
  QT_ASSERT(from != self_ && from < size());
  if (count == 0) return {};
  return comm_->receive(members(), data, count, dtype, from);
}
void Group::barrier() const {
  if (size() > 1) comm_->barrier(members());
}

std::vector<std::string> gather_text(const Group& group, const std::string& text) {
  if (group.size() == 1) return {text};
  const Group host = group.on_host();
  std::vector<int64_t> sizes(static_cast<size_t>(group.size()));
  const auto bytes = static_cast<int64_t>(text.size());
  host.all_gather(&bytes, sizes.data(), 1, DType::i64).wait();
  const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = text;
  padded.resize(static_cast<size_t>(longest));
  std::string all(static_cast<size_t>(longest * group.size()), '\0');
  host.all_gather(padded.data(), all.data(), longest, DType::u8).wait();
  std::vector<std::string> texts;
  for (size_t i = 0; i < sizes.size(); ++i)
    texts.push_back(all.substr(i * static_cast<size_t>(longest), static_cast<size_t>(sizes[i])));
  return texts;
}

}  // namespace quintet
