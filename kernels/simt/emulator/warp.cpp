// Warp-wide operations.

#include "kernels/simt/emulator/warp.h"

#include <fmt/format.h>

#include "kernels/simt/emulator/gang.h"

namespace quintet::emulated::simt::emulator {
namespace {

Exchange& at(void* const* lanes, int i) { return *static_cast<Exchange*>(lanes[i]); }

/// Every lane of mask takes the value of lane source(lane, exchange), or keeps its own where that is
/// outside its segment. A source lane outside the mask gives all ones: undefined on a device.
template <typename F>
void shuffle_from(void* const* lanes, unsigned mask, F source) {
  for (int i = 0; i < 32; ++i) {
    if (!((mask >> i) & 1u)) continue;
    Exchange& e = at(lanes, i);
    const int from = source(i, e);
    e.out = ((mask >> from) & 1u) ? at(lanes, from).in : ~uint64_t{0};
  }
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
  // A partner in a later segment is out of range; one in an earlier segment is read (as hardware does).
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
  if (!((mask >> lane) & 1u)) fail_here(fmt::format("{}: mask {:08x} lacks the calling lane", what, mask));
  mask &= warp.exists;  // a last warp that is not full may use the full mask
  if (std::popcount(mask) == 1) {
    void* lanes[32] = {};
    lanes[lane] = argument;
    run(lanes, mask);
    return;
  }
  for (size_t i = 0; i < warp.collectives.size(); ++i) {
    Collective& c = warp.collectives[i];
    if (c.mask != mask) continue;  // other lanes' business, or a deadlock that will be reported
    if (c.what != what) {
      fail_here(fmt::format("{} with mask {:08x}, but lanes {:08x} of the warp are at {} with that mask",
                            what, mask, c.arrived, c.what));
    }
    c.lanes[lane] = argument;
    c.arrived |= 1u << lane;
    if (c.arrived == mask) {
      Collective all = c;
      warp.collectives[i] = warp.collectives.back();
      warp.collectives.pop_back();
      run(all.lanes, mask);
      const int first = warp.first;
      for (unsigned rest = mask & ~(1u << lane); rest; rest &= rest - 1) {
        gang().wake(&gang().threads[static_cast<size_t>(first + std::countr_zero(rest))]);
      }
    } else {
      gang().suspend(what, mask);
    }
    return;
  }
  Collective c;
  c.what = what;
  c.mask = mask;
  c.arrived = 1u << lane;
  c.lanes[lane] = argument;
  warp.collectives.push_back(c);
  gang().suspend(what, mask);
}

unsigned active_lanes() {
  const Warp& warp = *self->warp;
  unsigned lanes = 0;
  for (int i = 0; i < 32; ++i) {
    if (((warp.exists >> i) & 1u) && !gang().threads[static_cast<size_t>(warp.first + i)].ended) {
      lanes |= 1u << i;
    }
  }
  return lanes;
}

}  // namespace quintet::emulated::simt::emulator
