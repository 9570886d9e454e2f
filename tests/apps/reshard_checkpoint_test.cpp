// A run's state goes from mesh to mesh through checkpoints and stays the same, bit for bit.

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "apps/process/ranks.h"
#include "apps/train/state/state_arrays.h"
#include "checkpoint/region_reader.h"
#include "runtime/mesh/collectives/collectives_threads.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mesh/sharding.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/multi_optimizer.h"
#include "runtime/optim/optax/optax.h"
#include "tests/checkpoint/scratch.h"

namespace quintet {
namespace {

using quintet::testing::Scratch;

struct MeshSize {
  int data, model;
};

Initializer numbered() {
  return Initializer([](Key, std::span<const int64_t>, uint64_t first, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = std::sin(static_cast<float>(first + i) * 0.37f) + 0.01f;
  });
}

void declare(Parameters& parameters) {
  const Scope root(parameters);
  (root / "embed").param("embedding", {{"vocab", 16}, {"embed", 32}}, numbered());
  (root / "mlp").param("wi", {{"embed", 32}, {"mlp", 64}}, numbered());
  (root / "mlp").param("wo", {{"mlp", 64}, {"embed", 32}}, numbered());
  (root / "norm").param("scale", {{"embed", 32}}, numbered());
}

OptimizerPtr factored() {
  return adafactor({.beta1 = 0.9,
                    .min_dim_size_to_factor = 8,
                    .logical_factor_rules = standard_logical_factor_rules()});
}
OptimizerPtr several() {
  return multi_optimizer({{matching("^/norm/"), optax_optimizer(adamw(1e-3))},
                          {matching("^/(embed|mlp)/"), factored()}});
}

/// One rank of a job: a trainer on a mesh, its state from `from`, if there is one, then saved.
void restore_and_save(Comm& comm, MeshSize size, const std::filesystem::path& dir, int64_t step,
                      const std::function<OptimizerPtr()>& optimizer) {
  const Mesh mesh({{"data", size.data}, {"model", size.model}}, &comm);
  const Sharding sharding(mesh, standard_logical_axis_rules({.parameter_partitioning_dims = 2}));
  const Sharding::Use use(sharding);
  Parameters parameters;
  declare(parameters);
  parameters.initialize(key_from_seed(0));
  Trainer trainer(LossFunction{}, parameters, optimizer(), TrainerOptions{}, key_from_seed(0));
  const auto lock = comm.rank() == 0 ? FolderLock(dir) : FolderLock::held_by_leader(dir);
  CheckpointManager manager(
      lock, {.keep = 0, .run_id = "r", .hosts = writers_of(comm.channel(), comm.size())});
  if (const auto latest = manager.latest_whole()) {
    load_arrays(*latest, trainer);
  } else {  // a state of which no two numbers are alike
    for (const StateArray& array : trainer.state())
      if (array.view.dtype == DType::f32 && array.name.starts_with("state/"))
        for (int64_t i = 0; i < array.view.elements(); ++i)
          array.view.data<float>()[i] =
              std::cos(static_cast<float>(i) + static_cast<float>(array.name.size()));
  }
  StateSlices state = to_slices(trainer, "float32");
  const int64_t sent = comm.traffic().messages();
  drop_replicas(state, mesh);
  EXPECT_EQ(comm.traffic().messages(), sent);
  manager.save(step, state.slices, "{}");
}

void passes_through_every_mesh(const std::function<OptimizerPtr()>& optimizer) {
  const Scratch scratch;
  const auto dir = scratch.path() / "run";
  int64_t step = 0;
  for (const MeshSize size : {MeshSize{1, 1}, {2, 2}, {4, 1}, {1, 2}, {2, 4}, {1, 1}})
    run_ranks(size.data * size.model,
              [&, at = step++](Comm& comm) { restore_and_save(comm, size, dir, at, optimizer); });
  const HostArrays first = read_checkpoint(checkpoint_path(dir, 0)).arrays;
  EXPECT_GT(first.size(), 8u);
  for (int64_t at = 1; at < step; ++at) {
    HostArrays later = read_checkpoint(checkpoint_path(dir, at)).arrays;
    ASSERT_EQ(later.size(), first.size());
    for (const auto& [name, array] : first)
      EXPECT_EQ(later.at(name).bytes, array.bytes) << name << " " << at;
  }
}

TEST(ReshardedCheckpoint, OfAdafactorStaysTheSame) { passes_through_every_mesh(factored); }
TEST(ReshardedCheckpoint, OfMultiOptimizerStaysTheSame) { passes_through_every_mesh(several); }

TEST(ReshardedCheckpoint, EveryRankWritesAndNoBlockIsWrittenTwice) {
  const Scratch scratch;
  const auto dir = scratch.path() / "run";
  run_ranks(4, [&](Comm& comm) { restore_and_save(comm, {2, 2}, dir, 0, factored); });
  const Manifest manifest = read_manifest(checkpoint_path(dir, 0));  // refuses overlapping slices
  std::vector<int64_t> bytes(4);
  for (const auto& [name, tensor] : manifest.tensors)
    for (const ManifestSlice& slice : tensor.slices)
      bytes[slice.file] += checked_bytes(tensor.dtype, slice.sizes, name);
  for (const int64_t n : bytes) EXPECT_GT(n, 4096);
}

int64_t peak_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
  return 0;
}

TEST(ReshardedCheckpoint, APartIsReadWithLittleMoreMemoryThanItTakes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow memory counts as ours here";
#endif
  const Scratch scratch;
  const int64_t rows = 4096, columns = 4096;  // 64 MiB
  {
    const HostArray array(DType::f32, {rows, columns});
    const FolderLock lock(scratch.path());
    CheckpointManager(lock).save(0, {whole_slice("x", array)}, "{}");
  }
  std::vector<std::byte> part(static_cast<size_t>(rows * columns), std::byte{1});  // a quarter
  std::ofstream("/proc/self/clear_refs") << "5";  // the highest so far is forgotten
  const int64_t before = peak_kilobytes();
  const NativeCheckpointReader reader(checkpoint_path(scratch.path(), 0));
  reader.read({"x", {0, 1024}, {rows, columns / 4}}, part.data());
  EXPECT_LT(peak_kilobytes() - before, rows * columns / 5 / 1024);
  EXPECT_EQ(part, std::vector<std::byte>(part.size()));
}

}  // namespace
}  // namespace quintet
