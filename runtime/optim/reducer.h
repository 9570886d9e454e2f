#pragma once
// Sums of numbers that ranks hold parts of: statistics of arrays that are sharded over a mesh. All that
// one phase of an update needs goes into a few collectives, one for each set of mesh axes.
//
//   Bucket bucket;
//   bucket.add(sums, slot.shard_axes());
//   bucket.sum(args.reducer);          // sums are now those of all shards, the same on all ranks
//
// A DeviceBucket is one in a device's memory, whose numbers have their places for good.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "runtime/mesh/layout.h"

namespace quintet {

class Reducer {
 public:
  virtual ~Reducer() = default;
  /// Adds `values` over the ranks along `axes`; called by all of them in the same order.
  virtual void sum(std::span<double> values, const MeshAxes& axes) = 0;
  virtual void max(std::span<double> values, const MeshAxes& axes) = 0;
  /// As sum, of values in the current device's memory; queued on its stream, not waited for.
  virtual void sum_on_device(std::span<double> values, const MeshAxes& axes) = 0;
  /// Whether this rank counts a block that `axes` shard where each counts once among the ranks along
  /// `ranks`: one of those that hold copies does.
  virtual bool counts(const MeshAxes& axes, const MeshAxes& ranks) const = 0;
  /// Nothing is computed: values have a number but do not exist.
  virtual bool is_abstract() const { return false; }
};

class Bucket {
 public:
  /// `values` must stay until sum(); without axes they are complete already.
  void add(std::span<double> values, const MeshAxes& axes);
  /// Throws Bug if something is sharded and there is no reducer.
  void sum(Reducer* reducer) const { reduce(reducer, &Reducer::sum); }
  void max(Reducer* reducer) const { reduce(reducer, &Reducer::max); }

 private:
  void reduce(Reducer* reducer, void (Reducer::*how)(std::span<double>, const MeshAxes&)) const;

  std::vector<std::pair<MeshAxes, std::vector<std::span<double>>>> groups_;
};

class DeviceBucket {
 public:
  /// `*place` will point to `count` numbers, side by side with those of the same axes; it must stay
  /// until allocate().
  void add(double** place, int64_t count, const MeshAxes& axes);
  /// That all of them take.
  int64_t bytes() const;
  /// Gives all of them their memory, which is the bucket's.
  void allocate(Device& device);
  /// A collective for each set of axes. Throws Bug if something is sharded and there is no reducer. Without
  /// memory it only counts, for a reducer that is abstract.
  void sum(Reducer* reducer) const;

 private:
  struct Place {
    double** pointer;
    int64_t count;
  };
  struct Group {
    MeshAxes axes;
    std::vector<Place> places;
    double* values = nullptr;
    int64_t count() const;
  };
  std::vector<Group> groups_;
  Buffer buffer_;
};

}  // namespace quintet
