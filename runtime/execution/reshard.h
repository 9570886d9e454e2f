#pragma once
// Bringing an array from one layout to another: an op too, whose gradient goes the other way
// (all-gather <-> reduce-scatter, all-to-all <-> all-to-all, open sum <-> all-reduce).
//
//   Tensor y = reshard(x, Layout::replicated(3));   // all of x on every rank

#include <memory>
#include <vector>

#include "runtime/mesh/reshard_plan.h"
#include "runtime/tensor/tensor.h"

namespace quintet {

/// `x` in another layout, recorded by a tape. Every rank of the mesh calls it.
Tensor reshard(const Tensor& x, const Layout& to);
/// The same for the runtime's own use: not recorded, and x itself where it has that layout. A sum is taken
/// in place where nobody else holds x.
Tensor resharded(Tensor x, const Layout& to);

/// The collectives that bring an array to another layout, whatever its sizes are. Arrays of the same
/// route can travel together.
struct Route {
  std::vector<std::pair<ReshardKind, MeshAxes>> steps;
  DType dtype;
  bool operator==(const Route&) const = default;
  /// Whether several can: no all-to-all is among them.
  bool takes_several() const;
};
Route route_between(const Tensor& x, const Layout& to);

/// A change of layout under way while other work goes on: of several collectives the first, the others
/// follow in advance() and wait(). A sum is taken in place where nobody else holds `x`.
class AsyncReshard {
 public:
  /// `background`: it is not waited for soon (Group::in_background).
  AsyncReshard(Tensor x, const Layout& to, bool background = false);
  /// Arrays of the same route, each to its layout, in the collectives of one.
  AsyncReshard(Tensors xs, const std::vector<Layout>& to, bool background = false);
  AsyncReshard(AsyncReshard&&) noexcept;
  AsyncReshard& operator=(AsyncReshard&&) noexcept;
  ~AsyncReshard();
  Tensor wait();
  Tensors wait_all();
  /// Waits for the collective under way and begins the next one, if there is another.
  void advance();

 private:
  friend Tensor resharded(Tensor x, const Layout& to);
  struct Work;
  AsyncReshard(Tensor x, const ReshardStep& step);
  size_t rounds() const { return steps_.empty() ? 0 : steps_[0].size(); }
  void start_next();
  void finish();

  Tensors now_;
  std::vector<std::vector<ReshardStep>> steps_;  // of each array
  size_t at_ = 0;
  bool background_;
  std::unique_ptr<Work> work_;  // of steps_[...][at_]
};

}  // namespace quintet
