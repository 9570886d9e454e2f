#pragma once
// Elementary transformations in which every number goes its own way, described by a table: the state's arrays, and
// the rule (kernels/optimizers/rules.h) with its numbers at a count of updates. They run on CPUs and GPUs.
//
//   elementwise({.slots = {{"nu", initial_scale}},
//                .step = [=](int32_t) { return RuleStep{rules::Rms{decay, 1 - decay, eps}}; }});

#include <functional>

#include "runtime/optim/optax/transformation.h"
#include "runtime/optim/state_buffer.h"

namespace quintet {

/// An array like each parameter.
struct StateSlot {
  const char* name;  // optax's
  double initial = 0;
  DType dtype = DType::f32;  // of the first slot: bfloat16 too
};

/// What a pass of a fused kernel can take the place of (optax.cpp).
struct ScaleByLion {
  double b1, b2;
  DType mu_dtype = DType::f32;
};
struct Fusable {
  struct Identity {};
  struct Clip {
    double max_delta;
  };
  struct Trace {
    double decay;
    bool nesterov;
  };
  struct Decay {
    double weight_decay;
  };
  struct Rate {
    ScalarOrSchedule rate;
  };
};

struct Elementwise {
  std::vector<StateSlot> slots{};  // two at most
  bool counts = false;             // has a state "count"
  std::function<RuleStep(int32_t count)> step = [](int32_t) {
    return RuleStep{};
  };                                                // after `count` updates
  std::function<float(const ParamSlot&)> factor{};  // Number::factor; empty: 1
  std::variant<std::monostate, Fusable::Identity, Fusable::Clip, Fusable::Trace, Fusable::Decay,
               Fusable::Rate, AdamOptions, ScaleByLion>
      fuses{};
};
TransformationPtr elementwise(Elementwise description);

/// 1 / (1 - beta^t) in float32, as optax corrects its moments' bias.
float bias_correction(double beta, int32_t t);
/// Numbers of Adam and its kin after `count` updates.
cpu::AdamStep adam_step(const AdamOptions& options, int32_t count, float rate = 0,
                        double decay = 0);
cpu::LionStep lion_step(const ScaleByLion& options, float rate = 0, double decay = 0);

/// What a moment is multiplied by: JAX rounds the number to the moment's type first.
float decay_of(double beta, DType moment);
float value_at(const ScalarOrSchedule& rate, int32_t count);
/// Throws a usage error that names `what` unless 0 <= beta < 1.
void check_rate(double beta, const char* what);

/// State arrays like the parameters, one each.
class ArraysLikeParams {
 public:
  void init(std::span<const ParamSlot> params, const StateSlot& slot);
  void add_state(const std::string& prefix, std::vector<StateArray>& arrays) const;
  float* pointer(size_t i) const { return static_cast<float*>(buffers_[i].view.pointer); }
  bool is_bf16() const { return slot_.dtype == DType::bf16; }

 private:
  StateSlot slot_{.name = ""};
  std::vector<StateBuffer> buffers_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::string>> axes_;
  std::vector<MeshAxes> mesh_axes_;
};

class RunningElementwise final : public RunningAs<Elementwise> {
 public:
  using RunningAs::RunningAs;
  void rebind(const Transformation& like) override;
  void init(std::span<const ParamSlot> params) override;
  void update(Updates& updates) override;
  void take_back() override;
  void add_state(const std::string& prefix, std::vector<StateArray>& arrays) const override;

  template <typename T>
  const T* fuses() const {
    return std::get_if<T>(&what().fuses);
  }
  bool has_float_state() const { return slots_.empty() || !slots_[0].is_bf16(); }
  float* state(size_t slot, size_t i) const {
    return slot < slots_.size() ? slots_[slot].pointer(i) : nullptr;
  }
  int32_t count() const { return count_.buffer == nullptr ? 0 : count_.count(); }
  /// An update was made elsewhere.
  void count_up();

 private:
  StateBuffer count_;  // absent (no buffer) in those that do not count
  std::vector<ArraysLikeParams> slots_;
};

}  // namespace quintet
