// Warp-wide operations.

#include "kernels/simt/emulator/warp.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/simt/emulator/engine/resident_blocks.h"

namespace quintet::emulated::simt::emulator {
namespace {

Exchange& at(void* const* lanes, int i) { return *static_cast<Exchange*>(lanes[i]); }

/// Every lane of mask takes the value of lane source(lane, exchange), or keeps its own where that
/// is outside its segment. A source lane outside the mask gives all ones: undefined on a device.
template <typename F>
void shuffle_from(void* const* lanes, unsigned mask, F source) {
  for (int i = 0; i < 32; ++i) {
    if (!((mask >> i) & 1u)) continue;
    Exchange& e = at(lanes, i);
    const int from = source(i, e);
    e.out = ((mask >> from) & 1u) ? at(lanes, from).in : ~uint64_t{0};
  }
}

// Kept out of warp_collective: a small frame there keeps the stacks of waiting lanes in the cache.
[[gnu::noinline]] void run_alone(void* argument, unsigned mask,
                                 void (*run)(void* const*, unsigned)) {
  void* lanes[32] = {};
  lanes[self->lane] = argument;
  run(lanes, mask);
}
[[gnu::noinline, noreturn]] void fail_mask(const char* what, unsigned mask) {
  fail_here(fmt::format("{}: mask {:08x} lacks the calling lane", what, mask));
}
[[gnu::noinline]] void check_same(const Collective& here, const char* what) {
  if (std::strcmp(here.what, what) == 0) return;
  fail_here(
      fmt::format("{} with mask {:08x}, but lanes {:08x} of the warp are at {} with that mask",
                  what, here.mask, here.arrived, here.what));
}
[[gnu::noinline]] Collective& open_collective(Warp& warp, Collective* free, const char* what,
                                              unsigned mask) {
  Collective& c = free ? *free : warp.collectives.emplace_back();
  c.what = what;
  c.mask = mask;
  c.arrived = 0;
  return c;
}

}  // namespace

void nothing(void* const*, unsigned) {}

void shuffle_index(void* const* lanes, unsigned mask) {
  shuffle_from(lanes, mask, [](int i, const Exchange& e) {
    return (i & ~(e.width - 1)) | (e.argument & (e.width - 1));
  });
}
void shuffle_up(void* const* lanes, unsigned mask) {
  shuffle_from(lanes, mask, [](int i, const Exchange& e) {
    return (i & (e.width - 1)) < e.argument ? i : i - e.argument;
  });
}
void shuffle_down(void* const* lanes, unsigned mask) {
  shuffle_from(lanes, mask, [](int i, const Exchange& e) {
    return (i & (e.width - 1)) + e.argument >= e.width ? i : i + e.argument;
  });
}
void shuffle_xor(void* const* lanes, unsigned mask) {
  // A partner in a later segment is out of range; one in an earlier segment is read (as hardware
  // does).
  shuffle_from(lanes, mask, [](int i, const Exchange& e) {
    const int from = i ^ e.argument;
    return from > (i | (e.width - 1)) ? i : from & 31;
  });
}

void vote(void* const* lanes, unsigned mask) {
  unsigned ballot = 0;
  for (int i = 0; i < 32; ++i) {
    if (((mask >> i) & 1u) && (at(lanes, i).in & 1u)) ballot |= 1u << i;
  }
  for (int i = 0; i < 32; ++i) {
    if ((mask >> i) & 1u) at(lanes, i).out = ballot;
  }
}

void match(void* const* lanes, unsigned mask) {
  for (int i = 0; i < 32; ++i) {
    if (!((mask >> i) & 1u)) continue;
    unsigned same = 0;
    for (int j = 0; j < 32; ++j) {
      if (((mask >> j) & 1u) && at(lanes, j).in == at(lanes, i).in) same |= 1u << j;
    }
    at(lanes, i).out = same;
  }
}

void warp_collective(const char* what, unsigned mask, void* argument,
                     void (*run)(void* const* lanes, unsigned mask)) {
  Warp& warp = *self->warp;
  const int lane = self->lane;
  if (!((mask >> lane) & 1u)) fail_mask(what, mask);
  mask &= warp.exists;  // a last warp that is not full may use the full mask
  if ((mask & (mask - 1)) == 0) return run_alone(argument, mask, run);
  Collective* here = nullptr;
  Collective* free = nullptr;
  for (Collective& c : warp.collectives) {
    if (!c.what)
      free = &c;
    else if (c.mask == mask)
      here = &c;  // another mask: other lanes' business, or a deadlock to be reported
  }
  if (!here)
    here = &open_collective(warp, free, what, mask);
  else if (here->what != what)
    check_same(*here, what);
  here->lanes[lane] = argument;
  here->arrived |= 1u << lane;
  if (here->arrived != mask) {
    resident_blocks().suspend(what, mask);
    return;
  }
  here->what = nullptr;
  run(here->lanes, mask);
  resident_blocks().wake(warp, mask & ~(1u << lane));
}

unsigned active_lanes() {
  const Warp& warp = *self->warp;
  unsigned lanes = 0;
  for (int i = 0; i < 32; ++i) {
    if (((warp.exists >> i) & 1u) &&
        !resident_blocks().threads[static_cast<size_t>(warp.first + i)].ended) {
      lanes |= 1u << i;
    }
  }
  return lanes;
}

}  // namespace quintet::emulated::simt::emulator
