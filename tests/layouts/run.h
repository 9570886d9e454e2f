#pragma once
// A small model trained on some layout, ranks being threads; what it computed comes back unsharded.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/base_model.h"
#include "runtime/mesh/collectives/collectives_threads.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mesh/sharding.h"
#include "runtime/optim/optimizer.h"
#include "runtime/trainer/trainer.h"

namespace quintet::testing {

enum class Network {
  t5_1_1,
  t5_1_0_tied,
  decoder_only,
  experts,
  multi_query,
  parallel,
  parallel_decoder_only,
  rotary,
  fused
};

/// What is trained: the same on every layout.
struct Training {
  Network network = Network::t5_1_1;
  std::string remat = "none";  // policy
  bool packed = false;
  bool dropless = false, experts_choose = false;  // of experts
  double router_stddev = 0.5;                     // 0: all tokens choose the first expert
  int64_t mlp_dim = 48, num_layers = 2, microbatches = 1, rows = 16;
  int64_t steps = 5;
  double dropout_rate = 0.1;
  std::function<OptimizerPtr()> optimizer;  // default: Adafactor
  GradientReduction reduction = GradientReduction::microbatch;
  DType reduction_dtype = DType::f32, gradient_dtype = DType::f32;
  bool interleave = false;
  bool fp8 = false, fused_casts = true;  // of dense layers
  bool t5x_dropout = false;
  bool summed_loss = false;  // of all tokens; else their mean
};

struct Partitioning {
  std::vector<MeshAxis> mesh;
  LogicalAxisRules rules;
};

using Arrays = std::map<std::string, std::vector<float>>;

struct Result {
  double loss = 0;
  Arrays gradients, parameters;          // of the first step; after the last
  std::vector<double> losses;            // of every step
  Metrics metrics;                       // of the last step
  Arrays fp8_scales;                     // after it
  std::map<std::string, int64_t> calls;  // of each op, in all steps
};

std::unique_ptr<BaseModel> make_model(const Training& training);
HostArrays make_batch(const Training& training, int64_t step);

LossFunction loss_of(const BaseModel& model, bool t5x_dropout = false);

/// Calls `body` on every rank of a mesh, one thread each.
void on_ranks(const Partitioning& partitioning, const std::function<void(Comm&)>& body);

/// The training on this rank alone.
Result run_unsharded(const Training& training);
/// The same on a mesh: what each rank has at the end, gathered.
std::vector<Result> run_sharded(const Training& training, const Partitioning& partitioning);

}  // namespace quintet::testing
