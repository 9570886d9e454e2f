#pragma once
// Transformations that need the norm of whole arrays, however they are sharded.
//
//   chain({clip_by_global_norm(1.0), scale_by_adam(), scale_by_trust_ratio(), scale_by_learning_rate(1e-3)})

#include "runtime/optim/device_clip.h"
#include "runtime/optim/optax/elementwise.h"

namespace quintet {

struct TrustRatioOptions {
  double min_norm = 0.0, trust_coefficient = 1.0, eps = 0.0;
};
TransformationPtr scale_by_trust_ratio(const TrustRatioOptions& options = {});

/// optax.clip_by_global_norm at work.
class RunningClip final : public RunningAs<double> {
 public:
  using RunningAs::RunningAs;
  double max_norm() const { return what(); }
  float scale(double norm) const { return norm < max_norm() ? 1.0f : f32(max_norm() / norm); }
  void init(std::span<const ParamSlot>) override {}
  void update(Updates& updates) override;
  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) const override;

 private:
  DeviceClip clip_;
};

}  // namespace quintet
