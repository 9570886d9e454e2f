#pragma once
// Activations that ops want in another layout, each brought there once for all that want it alike.
//
//   Tensor whole = resharded_activation(x, layout);   // for an op of this thread's pass

#include <deque>
#include <vector>

#include "runtime/execution/reshard.h"

namespace quintet {

/// Of a tape: the last one, which the next op often wants too (the products of query, key and value); those
/// that recorded ops came back to after others (the encoder's output, for every layer of the decoder), until no
/// gradient needs them any more; and those under way to gradients that run soon.
class ReshardCache {
 public:
  /// `records`: a tape holds `x` anyway.
  Tensor take(const Tensor& x, const Layout& to, bool records);
  /// What a later take() will want starts.
  void prefetch(const Tensor& x, const Layout& to);
  /// Of a region that is computed again: its input, which every such region may want.
  void note_input(const Tensor& x) { seen_.push_back(x); }
  /// What `outer` has of `x` is there for `same` too, another name of it.
  void share(const ReshardCache& outer, const Tensor& x, const Tensor& same);
  /// Gradients run from here on.
  void end_recording() { seen_.clear(); }

 private:
  struct Entry {
    Tensor from, to;
  };
  struct Moving {
    Tensor from;
    Layout layout;
    AsyncReshard reshard;
  };
  const Tensor* find(const Tensor& x, const Layout& to) const;
  std::deque<Moving>::iterator under_way(const Tensor& x, const Layout& to);
  Tensor move(const Tensor& x, const Layout& to);

  Entry last_;
  std::vector<Entry> kept_;
  std::deque<Moving> ahead_;
  Tensors seen_;  // the tape's nodes hold them anyway
};

/// `x` in another layout, shared with the other ops of the pass.
Tensor resharded_activation(const Tensor& x, const Layout& to);

}  // namespace quintet
