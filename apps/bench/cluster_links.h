#pragma once
// How long collectives take between this job's ranks, by size and group, for `quintet bench cluster`.

#include <functional>
#include <vector>

#include "apps/plan/cluster.h"
#include "runtime/mesh/collectives/collectives.h"

namespace quintet {

/// Every collective that training uses, in groups of ranks of one host, of one rank of each host, and of all:
/// all groups of a kind work at once, as those of a mesh axis do. All ranks call it and get the slowest's times.
std::vector<CollectiveTimes> measure_collectives(Comm& comm);

/// Of each number the largest that a rank has: others wait for the rank that takes longest.
std::vector<double> slowest(Comm& comm, std::vector<double> seconds);

/// Of `work` that all ranks do at once: the slowest rank's median, with the device's.
double median_seconds(Comm& comm, const std::function<void()>& work);

/// Of a collective that large products could hide: the part that they do. 1: all of it.
double measure_overlap(Comm& comm);

/// Bytes a second and seconds of a message, from the times of an all-gather over `ranks` ranks of `hosts` hosts.
struct LinkTimes {
  double bytes = 0, latency = 0;
};
LinkTimes link_times(const CollectiveTimes& all_gather);

}  // namespace quintet
