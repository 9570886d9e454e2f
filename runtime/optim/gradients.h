#pragma once
// The gradients of a step as one vector: its norm, and whether every number in it is finite (NaN
// policy N1: a step with NaN or infinite gradients is not applied). One pass over memory, on all
// threads.
//
//   const GradientCheck check = check_gradients(slots);
//   if (!check.all_finite) log("step skipped: {} is not finite", check.first_bad);

#include <span>
#include <string>

#include "kernels/optimizers/float_pointer.h"
#include "runtime/optim/optimizer.h"
#include "runtime/tensor/tensor.h"

namespace quintet {

struct GradientCheck {
  double norm = 0;  // sqrt of the sum of all squares; NaN or infinite if a gradient is
  bool all_finite = true;
  std::string first_bad;     // name of the first parameter whose gradient is not finite
  std::string first_marked;  // of the first whose mark is set
  std::vector<double>
      squares;  // sum of squares of each gradient, in the order of the slots, if asked for
};
struct GradientCheckOptions {
  Reducer* reducer = nullptr;  // needed where parameters are sharded; all ranks ask together
  /// What the slots' not_finite point to, a number a slot side by side.
  const int32_t* marks = nullptr;
  bool each = false;  // the squares of each gradient too
};
/// The sums are taken in blocks of fixed size and added in order: they do not depend on the threads. On a
/// GPU 16 bytes come to the host, and more only if something is not finite, is marked, or is asked for.
GradientCheck check_gradients(std::span<const ParamSlot> params,
                              const GradientCheckOptions& options = {});

/// The same check on a GPU in two halves: queued, for an update that reads it in the device's memory, and
/// read by the host when the update is queued. Gradients must stay until then, unless they are finite.
///
///   const QueuedCheck queued(slots);
///   const GradientCheck check = queued.check(queued.summary().to_host());
class QueuedCheck {
 public:
  explicit QueuedCheck(std::span<const ParamSlot> params, const GradientCheckOptions& options = {});
  ~QueuedCheck();
  QueuedCheck(QueuedCheck&&) noexcept;
  QueuedCheck& operator=(QueuedCheck&&) noexcept;
  /// In the device's memory: the sum of all squares; that an update with a gradient that is not finite is
  /// to be skipped.
  const double* squares() const;
  const UpdateControl* control() const;
  /// In the device's memory; what check() is given of it, which waits for the device only where more is to be read.
  const Tensor& summary() const;
  GradientCheck check(const HostArray& summary) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Sum of squares of n numbers, the same for any number of threads.
double sum_of_squares(FloatPointer values, int64_t n);

}  // namespace quintet
