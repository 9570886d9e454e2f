#include "runtime/optim/optax/transformation.h"

#include "runtime/base/check.h"

namespace quintet {
namespace {

TransformationPtr elementary(Elementary content) {
  return std::make_shared<const Transformation>(std::move(content));
}

void check_rate(double beta, const char* what) {
  QT_CHECK(beta >= 0 && beta < 1, "{} must be at least 0 and below 1, got {}", what, beta);
}

}  // namespace

void Transformation::flatten(const std::string& prefix, std::vector<Part>& parts) const {
  if (const auto* single = std::get_if<Elementary>(&content_)) {
    parts.push_back({*single, prefix});
    return;
  }
  const auto& members = std::get<std::vector<TransformationPtr>>(content_);
  for (size_t i = 0; i < members.size(); ++i)
    members[i]->flatten(fmt::format("{}{}/", prefix, i), parts);
}

TransformationPtr chain(std::vector<TransformationPtr> transformations) {
  for (const auto& member : transformations)
    QT_CHECK(member != nullptr, "chain: a transformation is None");
  return std::make_shared<const Transformation>(std::move(transformations));
}

TransformationPtr clip(double max_delta) {
  QT_CHECK(max_delta > 0, "clip: max_delta must be positive, got {}", max_delta);
  return elementary(Clip{max_delta});
}

TransformationPtr clip_by_global_norm(double max_norm) {
  QT_CHECK(max_norm > 0, "clip_by_global_norm: max_norm must be positive, got {}", max_norm);
  return elementary(ClipByGlobalNorm{max_norm});
}

TransformationPtr scale_by_adam(const AdamOptions& options) {
  check_rate(options.b1, "scale_by_adam: b1");
  check_rate(options.b2, "scale_by_adam: b2");
  return elementary(ScaleByAdam{options});
}

TransformationPtr scale_by_lion(double b1, double b2) {
  check_rate(b1, "scale_by_lion: b1");
  check_rate(b2, "scale_by_lion: b2");
  return elementary(ScaleByLion{b1, b2});
}

TransformationPtr trace(double decay, bool nesterov) { return elementary(Trace{decay, nesterov}); }

TransformationPtr add_decayed_weights(double weight_decay) {
  return elementary(AddDecayedWeights{weight_decay});
}

TransformationPtr scale_by_learning_rate(ScalarOrSchedule learning_rate) {
  return elementary(ScaleByLearningRate{std::move(learning_rate)});
}

TransformationPtr scale(double step_size) { return elementary(Scale{step_size}); }

TransformationPtr adam(ScalarOrSchedule learning_rate, const AdamOptions& options) {
  return chain({scale_by_adam(options), scale_by_learning_rate(std::move(learning_rate))});
}

TransformationPtr adamw(ScalarOrSchedule learning_rate, const AdamWOptions& o) {
  return chain({scale_by_adam({o.b1, o.b2, o.eps, o.eps_root, o.nesterov}),
                add_decayed_weights(o.weight_decay),
                scale_by_learning_rate(std::move(learning_rate))});
}

TransformationPtr lion(ScalarOrSchedule learning_rate, const LionOptions& o) {
  return chain({scale_by_lion(o.b1, o.b2), add_decayed_weights(o.weight_decay),
                scale_by_learning_rate(std::move(learning_rate))});
}

TransformationPtr sgd(ScalarOrSchedule learning_rate, const SgdOptions& o) {
  return chain({o.momentum ? trace(*o.momentum, o.nesterov) : elementary(Identity{}),
                scale_by_learning_rate(std::move(learning_rate))});
}

}  // namespace quintet
