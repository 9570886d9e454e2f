#pragma once
// The scales of a model's FP8 layers, and the history that delayed scaling takes them from, as Transformer Engine's.
//
//   Fp8State state(parameters, recipe);     // layers whose first kernel has ParamInfo::fp8
//   const auto weights = state.cast_weights();  // until the end of the step's products
//   state.update(control);                  // on all ranks; nothing but amax is forgotten if control says skip

#include <memory>
#include <string>
#include <vector>

#include "kernels/fp8/fp8.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/state_buffer.h"
#include "runtime/tensor/parameters.h"

namespace quintet {

/// Names of Transformer Engine's DelayedScaling.
struct Fp8Recipe {
  Float8 gradient_format = Float8::e5m2;
  double margin = 0;
  int64_t amax_history_len = 1024;
  bool most_recent = false;  // amax_compute_algo: else the largest of the history
  bool current = false;      // scales are those of each operand; there is no state
};

class Fp8State {
 public:
  /// Scales of 1 and empty histories, in the current device's memory. Parameters must outlive it.
  Fp8State(Parameters& parameters, const Fp8Recipe& recipe);
  bool empty() const { return names_.empty(); }
  /// Layers have the bytes of their weights while it lives; without, their products cast for themselves.
  class CastWeights {
   public:
    explicit CastWeights(Fp8State& state);
    ~CastWeights();
    CastWeights(const CastWeights&) = delete;
    CastWeights& operator=(const CastWeights&) = delete;

   private:
    Fp8State& state_;
  };
  /// The beginning of a step: weights of layers whose casts are fused (fuses_casts) and of which this rank has the whole, for all of its products.
  [[nodiscard]] CastWeights cast_weights() { return CastWeights(*this); }
  /// The end of a step on the current mesh; `control`: in the device's memory, may be null.
  void update(const UpdateControl* control);
  /// Of a step whose gradients are dropped.
  void discard();
  /// Of each layer amax_history [3, length] and scale [3], of x, w and gradients; writing through them restores, then call
  /// restored().
  std::vector<StateArray> state() const;
  void restored();

 private:
  Fp8Scaling* scalings() const { return reinterpret_cast<Fp8Scaling*>(scaling_.raw()); }

  std::vector<ParamInfo*> layers_;
  Tensors weights_;  // bytes of a layer's, both forms; absent: cast by its products
  std::vector<std::string> names_;
  Tensor scaling_;
  StateBuffer history_;
  Fp8Update update_;
};

/// Of arrays that it has in a checkpoint, which runs with and without FP8 may read from each other.
inline constexpr std::string_view kFp8Prefix = "flax_mutables/fp8_metas/";

}  // namespace quintet
