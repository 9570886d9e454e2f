#include "data/sources/interleave.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace quintet::data {

Interleave::Interleave(const std::vector<int64_t>& sizes, int64_t cycle, int64_t block) {
  const size_t width = std::min(sizes.size(), static_cast<size_t>(cycle));
  std::vector<Place> open;  // file == sizes.size(): nothing left for this slot
  for (size_t file = 0; file < width; ++file) open.push_back({file, 0});
  size_t next_file = width;
  const auto left = [&](const Place& place) { return sizes[place.file] - place.index; };
  while (!open.empty()) {
    // As many whole rounds as all slots can give.
    int64_t rounds = left(open.front()) / block;
    for (const Place& place : open) rounds = std::min(rounds, left(place) / block);
    if (rounds > 0) add(rounds, block, open);
    for (Place& place : open) place.index += rounds * block;
    // One round in which some file ends; its slot opens the next file on its next turn.
    std::vector<Place> still_open;
    for (const Place& place : open) {
      const int64_t count = std::min(block, left(place));
      if (count > 0) add(1, count, {place});
      if (count == block)
        still_open.push_back({place.file, place.index + block});
      else if (next_file < sizes.size())
        still_open.push_back({next_file++, 0});
    }
    open = std::move(still_open);
  }
}

void Interleave::add(int64_t rounds, int64_t block, std::vector<Place> slots) {
  const int64_t first = size_;
  size_ += rounds * block * static_cast<int64_t>(slots.size());
  segments_.push_back({first, block, std::move(slots)});
}

Interleave::Place Interleave::at(int64_t i) const {
  QT_ASSERT(i >= 0 && i < size_);
  const auto after = std::upper_bound(segments_.begin(), segments_.end(), i,
                                      [](int64_t at, const Segment& s) { return at < s.first; });
  const Segment& segment = *(after - 1);
  const int64_t within = i - segment.first;
  const int64_t turn = within / segment.block;
  const auto width = static_cast<int64_t>(segment.slots.size());
  const Place& slot = segment.slots[static_cast<size_t>(turn % width)];
  return {slot.file, slot.index + turn / width * segment.block + within % segment.block};
}

}  // namespace quintet::data
