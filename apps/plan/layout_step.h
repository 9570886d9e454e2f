#pragma once
// A training step of some layout, for `quintet bench layouts` on ranks and, simulated, `quintet plan`:
// both run this, so that they count the same.

#include <functional>
#include <memory>

#include "apps/plan/layouts.h"
#include "models/base_model.h"
#include "runtime/abstract/abstract_collectives.h"
#include "runtime/abstract/step_clock.h"
#include "runtime/mesh/sharding.h"
#include "runtime/optim/optimizer.h"
#include "runtime/profile/profile.h"
#include "runtime/trainer/trainer.h"

namespace quintet {

/// What is trained.
struct ModelAndOptimizer {
  std::shared_ptr<BaseModel> model;
  OptimizerPtr optimizer;
};
struct LayoutCase {
  std::function<ModelAndOptimizer()> make;             // a fresh one
  std::function<ModelAndOptimizer()> make_remat = {};  // that computes layers again; empty: none
  std::function<HostArrays(int64_t step)> batch;       // of all ranks
  int64_t tokens = 0;                                  // of a batch
  int64_t experts = 0;                                 // of a layer; 0: the model has none
  TrainerOptions options = {};
};

/// What a simulated job runs on.
struct SimulatedJob {
  std::vector<std::string> hosts;  // of every rank
  Machine machine;
  CollectiveCost cost = {};
  double network_cost = Sharding::kNetworkCost;  // of a byte between hosts, for the planner
  int64_t memory_bytes = 0;                      // of a device; 0: no limit
  bool is_gpu = false;                           // whose kernels hold scratch, which counts
  int64_t workspace = 0;                         // bytes that its matrix products hold
  int64_t multiprocessors = 132;                 // of a GPU: an H200's
};

/// Only the memory and the collectives of an optimizer.
OptimizerPtr abstract_optimizer(OptimizerPtr optimizer, DType gradient_dtype);
LossFunction loss_of(const BaseModel& model);
/// Its options for losses of loss_of(), in as many microbatches as a rank has rows where the optimizer clips the gradient of
/// each example. Throws usage errors as the run does.
TrainerOptions simulated_options(const LayoutCase& what, const ModelAndOptimizer& trained);

/// What this rank did in one step.
struct StepProfile {
  Profile ops;
  double compute = 0;  // seconds, the ops' and the host's between them
};

/// Times `steps` steps after two that warm up; every rank of `comm` calls it. The row's times are
/// this rank's, of the median step; `profiles`: of each of these steps.
LayoutRow measure_layout(const LayoutCase& what, const TrainingLayout& layout, Comm& comm,
                         int64_t steps, std::vector<StepProfile>* profiles = nullptr);
/// The same simulated: rank 0's. MFU is against the peak of job.machine for `model_flops` of a step.
LayoutRow plan_layout(const LayoutCase& what, const TrainingLayout& layout, const SimulatedJob& job,
                      double model_flops);
/// Of one step, whatever the layout.
double model_flops(const LayoutCase& what);
/// What each op does in a step of rank 0.
std::map<std::string, StepClock::OpTotal, std::less<>> planned_ops(const LayoutCase& what,
                                                                   const TrainingLayout& layout);

}  // namespace quintet
