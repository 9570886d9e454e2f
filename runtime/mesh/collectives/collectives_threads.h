#pragma once
// Ranks that are threads of this process: how tests run any mesh.
//
//   const std::vector<Step> steps = run_ranks(4, [](Comm& comm) {
//     Mesh mesh({{"data", 2}, {"model", 2}}, &comm);
//     return train_step(mesh, ...);
//   });

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "runtime/mesh/collectives/collectives.h"

namespace quintet {

struct ThreadRanks {
  int count = 1;
  std::vector<std::string> hosts = {};  // of every rank; empty: all on one
  std::chrono::milliseconds timeout{60'000};
  Device* device = nullptr;  // that the arrays are on; null: the CPU
};

/// Calls `body` in one thread a rank and waits for all. When a rank throws, the others' collectives
/// fail too, and what it threw is thrown here. A rank that waits longer than the timeout for
/// another throws Error(kPeer) naming both.
void run_threads(const ThreadRanks& ranks, const std::function<void(Comm&)>& body);

/// The same with each rank's result, by rank.
template <typename F>
auto run_ranks(const ThreadRanks& ranks, F body) {
  using Result = std::invoke_result_t<F, Comm&>;
  if constexpr (std::is_void_v<Result>) {
    run_threads(ranks, body);
  } else {
    std::vector<std::optional<Result>> results(static_cast<size_t>(ranks.count));
    run_threads(ranks, [&](Comm& comm) { results[static_cast<size_t>(comm.rank())] = body(comm); });
    std::vector<Result> plain;
    for (auto& result : results) plain.push_back(std::move(*result));
    return plain;
  }
}
template <typename F>
auto run_ranks(int count, F body) {
  return run_ranks(ThreadRanks{.count = count}, std::move(body));
}

}  // namespace quintet
