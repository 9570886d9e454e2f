#pragma once
// Collectives over ordinary memory, made of messages (host_algorithms.h), the same whatever carries
// them; so are their bits. A GPU's data pass through ordinary memory.

#include <memory>

#include "runtime/mesh/collectives/collectives.h"
#include "runtime/mesh/collectives/transport.h"

namespace quintet {

/// A comm whose collectives run in a thread of its own, in the order in which they were started.
/// `device`: where the data lie.
std::unique_ptr<Comm> host_comm(std::unique_ptr<Transport> transport, Device& device);

}  // namespace quintet
