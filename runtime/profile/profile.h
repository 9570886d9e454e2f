#pragma once
// Time, bytes and arithmetic per op (`--profile`).

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/base/execution_context.h"

namespace quintet {

class Profile {
 public:
  struct Entry {
    int64_t calls = 0, bytes = 0;   // bytes: operands and results of all calls
    double seconds = 0, flops = 0;  // flops: of matrix products, as records of ops.def count
  };
  /// Ops of this thread report to it.
  using Use = ContextMember<&ExecutionContext::profile>;

  void add(std::string_view name, double seconds, int64_t bytes, double flops);
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  /// A table, the most expensive first: op, calls and seconds of one of `steps` equal steps, share
  /// of all ops, GB/s, GFLOP/s; then the ops' sum beside the `wall_seconds` that all steps took.
  std::string table(int64_t steps, double wall_seconds) const;

 private:
  std::map<std::string, Entry, std::less<>> entries_;
};

/// Reports the time from its construction to its end, if there is a profile.
class ProfileScope {
 public:
  ProfileScope(std::string_view name, int64_t bytes, double flops = 0)
      : name_(name), bytes_(bytes), flops_(flops), profile_(ExecutionContext::current().profile) {
    if (profile_ != nullptr) start_ = Clock::now();
  }
  ~ProfileScope() {
    if (profile_ != nullptr) profile_->add(name_, seconds_since(start_), bytes_, flops_);
  }

 private:
  std::string_view name_;
  int64_t bytes_;
  double flops_;
  Profile* profile_;
  Clock::time_point start_;
};

}  // namespace quintet
