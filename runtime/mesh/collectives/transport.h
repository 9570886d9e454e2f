#pragma once
// How bytes in ordinary memory get from rank to rank: what collectives_host.h needs of threads or
// MPI.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace quintet {

/// Bytes to or from a rank.
struct Message {
  int rank = 0;
  void* data = nullptr;
  int64_t bytes = 0;
};

/// What the bytes belong to, for messages and for finding ranks that do different things.
struct Activity {
  const char* collective = "";
  std::string group;       // mesh axes
  int64_t count = 0;       // elements
  int64_t sequence = 0;    // collectives of this comm before it
  int64_t step = -1;       // training step; -1: outside of training
  std::vector<int> ranks;  // members of the group
  bool operator==(const Activity&) const = default;
};
/// "all_reduce over data of 512 elements, the 7th collective, step 12"
std::string to_string(const Activity& activity);

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual const std::vector<std::string>& hosts() const = 0;
  /// Sends and receives all of them; returns when all are done. Messages between two ranks arrive
  /// in order. Throws Error(kPeer) if a rank is dead, hangs or is elsewhere in the program.
  virtual void exchange(std::span<const Message> sends, std::span<const Message> receives,
                        const Activity& activity) = 0;
  /// Another one between the same ranks; called by all of them.
  virtual std::unique_ptr<Transport> channel() = 0;
};

}  // namespace quintet
