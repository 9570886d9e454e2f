#pragma once
// A simulated job: one rank, the others do not exist. Collectives are counted as Traffic counts them,
// take as long as `cost` says on the rank's StepClock, and move nothing.
//
//   const auto comm = abstract_comm(0, hosts, Device::current(), cost);
//   const Mesh mesh({{"data", 64}, {"model", 8}}, comm.get());

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/abstract/step_clock.h"
#include "runtime/mesh/collectives/collectives.h"

namespace quintet {

/// Of a collective between some ranks, each of which sends `bytes`.
using CollectiveCost = std::function<TransferTime(std::string_view collective, double bytes,
                                                  const std::vector<int>& ranks)>;

/// `hosts`: of every rank. `cost`: empty, collectives take no time.
std::unique_ptr<Comm> abstract_comm(int rank, std::vector<std::string> hosts, Device& device,
                                    CollectiveCost cost = {});

}  // namespace quintet
