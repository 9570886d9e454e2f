#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "fake_stream.h"
#include "nccl.h"
#include "runtime/base/dtype.h"

namespace {

/// What a rank gives a collective and what it makes of what all gave.
using Froms = std::vector<const std::byte*>;
using Bytes = std::vector<std::byte>;

/// The ranks of a communicator.
struct Team {
  explicit Team(int n) : froms(static_cast<size_t>(n)) {}
  std::mutex mutex;
  std::condition_variable changed;
  Froms froms;
  size_t came = 0, round = 0;
  int members = 0;       // that have begun to make their communicator
  bool aborted = false;  // by a rank: nobody is waited for any more
  /// One split of it: colour and key by rank, and the teams of the colours once all have said theirs.
  struct Split {
    std::map<int, std::pair<int, int>> wishes;
    std::map<int, std::shared_ptr<Team>> parts;
  };
  std::vector<std::shared_ptr<Split>> splits;
  std::map<std::pair<int, int>, std::deque<Bytes>> letters;

  void meet() {
    std::unique_lock lock(mutex);
    const size_t now = round;
    if (++came == froms.size()) {
      came = 0;
      ++round;
      changed.notify_all();
    }
    changed.wait(lock, [&] { return round != now || aborted; });
  }
};

std::mutex teams_mutex;
std::map<int, std::shared_ptr<Team>> teams;
int next_team = 1;
std::atomic<FakeFault> fault{FakeFault::none};
std::atomic<int> splits_made{0}, aborts{0}, blocks{0};
thread_local int open_groups = 0;

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

/// `count` elements from `begin` on of what all ranks gave, reduced; T is added up as float if it is
/// small.
template <typename T>
Bytes reduced_as(const Froms& froms, size_t begin, size_t count, ncclRedOp_t op) {
  using Sum = std::conditional_t<sizeof(T) == 2, float, T>;
  Bytes result(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    const auto at = [&](size_t rank) {
      T value;
      std::memcpy(&value, froms[rank] + (begin + i) * sizeof(T), sizeof(T));
      return static_cast<Sum>(value);
    };
    Sum total = at(0);
    for (size_t r = 1; r < froms.size(); ++r)
      // As NCCL's maximum, which passes over NaN.
      total = op == ncclSum ? static_cast<Sum>(total + at(r))
                            : static_cast<Sum>(std::fmax(total, at(r)));
    const T value(total);
    std::memcpy(result.data() + i * sizeof(T), &value, sizeof(T));
  }
  return result;
}

Bytes reduced(const Froms& froms, size_t begin, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  if (type == ncclFloat32) return reduced_as<float>(froms, begin, count, op);
  if (type == ncclFloat64) return reduced_as<double>(froms, begin, count, op);
  if (type == ncclBfloat16) return reduced_as<quintet::bfloat16>(froms, begin, count, op);
  if (type == ncclInt64) return reduced_as<int64_t>(froms, begin, count, op);
  return reduced_as<int32_t>(froms, begin, count, op);
}

}  // namespace

struct FakeNccl {
  std::shared_ptr<Team> team;
  int rank;
  std::shared_ptr<Team::Split> split = nullptr;  // it is a part of `whole`, and which is open
  std::shared_ptr<Team> whole = nullptr;
  int color = 0;
  size_t splits = 0;  // this rank's

  /// Whether all ranks have come; under teams_mutex.
  bool is_ready() {
    if (split == nullptr) return team->members == static_cast<int>(team->froms.size());
    if (team != nullptr) return true;
    if (split->wishes.size() < whole->froms.size()) return false;
    std::vector<std::pair<int, int>> keys;  // key, rank in the whole
    for (const auto& [member, wish] : split->wishes)
      if (wish.first == color) keys.emplace_back(wish.second, member);
    std::sort(keys.begin(), keys.end());
    auto& part = split->parts[color];
    if (part == nullptr) part = std::make_shared<Team>(static_cast<int>(keys.size()));
    team = part;
    const auto self =
        std::find_if(keys.begin(), keys.end(), [&](const auto& key) { return key.second == rank; });
    rank = static_cast<int>(self - keys.begin());
    return true;
  }

  /// Every rank's `from` -> `make` of them -> this rank's `to`, once everybody has read.
  ncclResult_t exchange(const void* from, void* to, cudaStream_t stream,
                        std::function<Bytes(const Froms&)> make) {
    stream->add([team = team, rank = rank, from, to, make = std::move(make)] {
      {
        const std::lock_guard lock(team->mutex);
        team->froms[static_cast<size_t>(rank)] = static_cast<const std::byte*>(from);
      }
      team->meet();
      {
        const std::lock_guard lock(team->mutex);
        if (team->aborted) return;  // what is not there is not read
      }
      const Bytes made = make(team->froms);
      team->meet();
      std::memcpy(to, made.data(), made.size());
    });
    return ncclSuccess;
  }
};

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSystemError ? "unhandled system error" : "remote process exited";
}
const char* ncclGetLastError(ncclComm_t) { return "fake"; }
ncclResult_t ncclMemAlloc(void** block, size_t bytes) {
  if (fault == FakeFault::no_memory) return ncclSystemError;
  ++blocks;
  *block = std::malloc(bytes);
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* block) {
  --blocks;
  std::free(block);
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(teams_mutex);
  std::memcpy(id->internal, &next_team, sizeof(next_team));
  ++next_team;
  return ncclSuccess;
}
ncclResult_t ncclGetVersion(int* version) {
  *version = 22105;
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidUsage;  // would hold up who makes it
  const std::lock_guard lock(teams_mutex);
  int number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  auto& team = teams[number];
  if (team == nullptr) team = std::make_shared<Team>(ranks);
  ++team->members;
  *comm = new FakeNccl{team, rank};
  return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part,
                           ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidUsage;
  const std::lock_guard lock(teams_mutex);
  auto& splits = comm->team->splits;
  if (comm->splits == splits.size()) splits.push_back(std::make_shared<Team::Split>());
  const auto split = splits[comm->splits++];
  split->wishes[comm->rank] = {color, key};
  *part = new FakeNccl{nullptr, comm->rank, split, comm->team, color};
  splits_made += config->splitShare;
  return ncclInProgress;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard lock(teams_mutex);
    ++aborts;
    if (comm->team != nullptr) {
      const std::lock_guard team_lock(comm->team->mutex);
      comm->team->aborted = true;
      comm->team->changed.notify_all();
    }
  }
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(teams_mutex);
  const bool is_ready = comm->is_ready();
  *state = fault == FakeFault::link                      ? ncclRemoteError
           : fault == FakeFault::init_fails              ? ncclSystemError
           : !is_ready || fault == FakeFault::init_hangs ? ncclInProgress
                                                         : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  ++open_groups;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() { return open_groups-- > 0 ? ncclSuccess : ncclInvalidUsage; }

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  while (fault == FakeFault::launch_blocks) std::this_thread::yield();
  return comm->exchange(from, to, stream,
                        [=](const Froms& froms) { return reduced(froms, 0, count, type, op); });
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const size_t begin = count * static_cast<size_t>(comm->rank);
  return comm->exchange(from, to, stream,
                        [=](const Froms& froms) { return reduced(froms, begin, count, type, op); });
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return comm->exchange(from, to, stream, [bytes = count * size_of(type)](const Froms& froms) {
    Bytes all;
    for (const std::byte* block : froms) all.insert(all.end(), block, block + bytes);
    return all;
  });
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return comm->exchange(from, to, stream, [=, bytes = count * size_of(type)](const Froms& froms) {
    const std::byte* block = froms[static_cast<size_t>(root)];
    return Bytes(block, block + bytes);
  });
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                      cudaStream_t stream) {
  if (to == comm->rank && open_groups == 0) return ncclInvalidUsage;  // would wait for itself
  stream->add([=, team = comm->team, rank = comm->rank, bytes = count * size_of(type)] {
    const auto* data = static_cast<const std::byte*>(from);
    const std::lock_guard lock(team->mutex);
    team->letters[{rank, to}].emplace_back(data, data + bytes);
    team->changed.notify_all();
  });
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                      cudaStream_t stream) {
  stream->add([=, team = comm->team, rank = comm->rank, bytes = count * size_of(type)] {
    std::unique_lock lock(team->mutex);
    auto& letters = team->letters[{from, rank}];
    team->changed.wait(lock, [&] { return !letters.empty() || team->aborted; });
    if (letters.empty()) return;
    std::copy_n(letters.front().data(), std::min(bytes, letters.front().size()),
                static_cast<std::byte*>(to));
    letters.pop_front();
  });
  return ncclSuccess;
}

void set_fake_fault(FakeFault what) { fault = what; }
int fake_splits() { return splits_made; }
int fake_blocks() { return blocks; }
int fake_aborts() { return aborts; }
void release_fake_ranks() {
  const std::lock_guard lock(teams_mutex);
  for (const auto& [number, team] : teams) {
    const std::lock_guard team_lock(team->mutex);
    team->aborted = true;
    team->changed.notify_all();
  }
}
