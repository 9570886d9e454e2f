#pragma once
// Bringing an array from one layout to another: an op too, whose gradient goes the other way
// (all-gather <-> reduce-scatter, all-to-all <-> all-to-all, open sum <-> all-reduce).
//
//   Tensor y = reshard(x, Layout::replicated(3));   // all of x on every rank

#include <memory>
#include <optional>

#include "runtime/tensor/tensor.h"

namespace quintet {

/// `x` in another layout, recorded by a tape. Every rank of the mesh calls it.
Tensor reshard(const Tensor& x, const Layout& to);
/// The same for the runtime's own use: not recorded, and x itself where it has that layout.
Tensor resharded(const Tensor& x, const Layout& to);

/// A change of layout that is one collective, under way while other work goes on.
class AsyncReshard {
 public:
  /// nullopt where the change is something else.
  static std::optional<AsyncReshard> start(const Tensor& x, const Layout& to);
  AsyncReshard(AsyncReshard&&) noexcept;
  AsyncReshard& operator=(AsyncReshard&&) noexcept;
  ~AsyncReshard();
  const Tensor& result() const;  // its values are there after wait()
  Tensor wait();

 private:
  friend Tensor resharded(const Tensor& x, const Layout& to);
  struct Work;
  explicit AsyncReshard(std::unique_ptr<Work> work);
  std::unique_ptr<Work> work_;
};

}  // namespace quintet
