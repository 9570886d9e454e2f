#pragma once
// A served network that several ranks hold together. The first rank's engine plans every pass; the others are told
// what it reads and do the same with what they hold.
//
//   engine(led_network(cpu_network(*packed, options), group), options)    // the first rank
//   follow(*cpu_network(*packed, options), group);                      // others: returns when the first's goes

#include "models/serving/served_network.h"
#include "runtime/mesh/shared_memory_group.h"

namespace quintet::serving {

/// The first rank's. A pass that fails on one rank alone would leave the others waiting, so it ends the job (the
/// group's `end`). When it goes, the others are told that there is no more to do.
std::unique_ptr<ServedNetwork> led_network(std::unique_ptr<ServedNetwork> network,
                                           SharedMemoryGroup& group);
void follow(ServedNetwork& network, SharedMemoryGroup& group);

}  // namespace quintet::serving
