#pragma once
// The order in which seqio reads a set of files: 16 at a time in turn, 16 examples of each, the next
// file in the place of one that has ended. Computed, not stored: memory grows with the number of
// files, not of examples. Source: tf.data's interleave with cycle_length and block_length 16.
//
//   const Interleave order({130, 45});
//   auto [file, index] = order.at(17);   // example 17 is example 1 of file 1

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quintet::data {

class Interleave {
 public:
  struct Place {
    size_t file;
    int64_t index;
  };
  /// `sizes`: examples of each file, in the order of the files.
  explicit Interleave(const std::vector<int64_t>& sizes, int64_t cycle = 16, int64_t block = 16);
  int64_t size() const { return size_; }
  /// The place of example i, 0 <= i < size().
  Place at(int64_t i) const;

 private:
  /// `rounds` times `block` examples of each of `slots` in turn.
  struct Segment {
    int64_t first, block;
    std::vector<Place> slots;  // where each begins
  };
  void add(int64_t rounds, int64_t block, std::vector<Place> slots);
  std::vector<Segment> segments_;
  int64_t size_ = 0;
};

}  // namespace quintet::data
