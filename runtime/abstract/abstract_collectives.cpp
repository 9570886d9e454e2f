#include "runtime/abstract/abstract_collectives.h"

#include <algorithm>

#include "kernels/device.h"

namespace quintet {
namespace {

class AbstractComm final : public Comm {
 public:
  AbstractComm(int rank, std::vector<std::string> hosts, Device& device, CollectiveCost cost)
      : rank_(rank), hosts_(std::move(hosts)), device_(device), cost_(std::move(cost)) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hosts_.size()); }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  std::unique_ptr<Comm> channel() override { return abstract_comm(rank_, hosts_, device_, cost_); }
  Device& device() const override { return device_; }
  Comm& host() override { return *this; }

 protected:
  Pending all_reduce(const Members& group, const CollectiveArrays& arrays, DType dtype,
                     Reduction) override {
    return take(group, "all_reduce", total_count(arrays) * size_of(dtype));
  }
  Pending all_gather(const Members& group, const CollectiveArrays& arrays, DType dtype) override {
    return take(group, "all_gather", all(group, total_count(arrays)) * size_of(dtype));
  }
  Pending reduce_scatter(const Members& group, const CollectiveArrays& arrays, DType dtype,
                         Reduction) override {
    return take(group, "reduce_scatter", all(group, total_count(arrays)) * size_of(dtype));
  }
  Pending all_to_all(const Members& group, const void*, void*, int64_t count,
                     DType dtype) override {
    return take(group, "all_to_all", all(group, count) * size_of(dtype));
  }
  Pending exchange(const Members& group, const void*, Slices, void*, Slices, int64_t count,
                   DType dtype) override {
    return take(group, "all_to_all", count * size_of(dtype));
  }
  Pending broadcast(const Members& group, void*, int64_t count, DType dtype, int) override {
    return take(group, "broadcast", count * size_of(dtype));
  }
  Pending send(const Members& group, const void*, int64_t count, DType dtype, int) override {
    return take(group, "send", count * size_of(dtype));
  }
  Pending receive(const Members&, void*, int64_t, DType, int) override { return {}; }
  void barrier(const Members&) override {}

 private:
  static int64_t all(const Members& group, int64_t count) {
    return count * static_cast<int64_t>(group.ranks.size());
  }
  Links links_of(const std::vector<int>& ranks) const {
    const auto host_of = [&](int rank) -> const std::string& {
      return hosts_[static_cast<size_t>(rank)];
    };
    const bool together = std::ranges::all_of(
        ranks, [&](int rank) { return host_of(rank) == host_of(ranks.front()); });
    return together ? Links::within_host : Links::between_hosts;
  }
  /// `bytes`: of the global array.
  Pending take(const Members& group, const char* collective, int64_t bytes) const {
    StepClock* clock = ExecutionContext::current().clock;
    if (clock == nullptr || !cost_) return {};
    const int64_t sent = Traffic::sent(collective, bytes, static_cast<int>(group.ranks.size()));
    const auto transfer = clock->send(cost_(collective, static_cast<double>(sent), group.ranks),
                                      links_of(group.ranks), group.background);
    return Pending([clock, transfer] { clock->wait(*transfer); });
  }

  int rank_;
  std::vector<std::string> hosts_;
  Device& device_;
  CollectiveCost cost_;
};

}  // namespace

std::unique_ptr<Comm> abstract_comm(int rank, std::vector<std::string> hosts, Device& device,
                                    CollectiveCost cost) {
  return std::make_unique<AbstractComm>(rank, std::move(hosts), device, std::move(cost));
}

}  // namespace quintet
