// What saving and restoring take of a rank's memory beside the state itself: at most
// 1.2 times the shard.

#include <gtest/gtest.h>

#include <fstream>

#include "apps/train/state/state_arrays.h"
#include "checkpoint/region_reader.h"
#include "runtime/abstract/abstract_collectives.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mesh/sharding.h"
#include "runtime/optim/optax/optax.h"
#include "tests/checkpoint/scratch.h"

namespace quintet {
namespace {

using quintet::testing::Scratch;

/// Most that was resident since the last call of forget_peak().
int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  return 0;
}
void forget_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

/// Rank 0 of 2 x 2, the others abstract: a quarter of a matrix and of Adam's moments.
class StateMemory : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's shadow and what it keeps of freed memory count as ours here";
#endif
  }
  StateMemory() {
    const Scope root(parameters_);
    (root / "mlp").param("wi", {{"embed", 4096}, {"mlp", 4096}}, Initializer());
    parameters_.allocate();
    trainer_.emplace(LossFunction{}, parameters_, optax_optimizer(adamw(1e-3)), TrainerOptions{},
                     key_from_seed(0));
    for (const StateArray& array : trainer_->state()) {
      if (array.view.dtype != DType::f32) continue;
      std::fill_n(array.view.data<float>(), array.view.elements(), 0.5f);  // resident
      shard_ += array.view.elements() * size_of(DType::f32);
    }
  }
  /// The whole state, as all ranks would write it.
  void write_whole() {
    HostArrays whole;
    std::vector<TensorSlice> slices;
    for (const StateArray& array : trainer_->state()) {
      const View& view = array.view;
      slices.push_back(whole_slice(
          array.name,
          whole
              .emplace(array.name, HostArray(view.dtype, {view.global.begin(),
                                                          view.global.begin() + view.rank}))
              .first->second));
    }
    const HostArray step(DType::i64, {});
    slices.push_back(whole_slice("state/step", step));
    const FolderLock lock(scratch_.path());
    CheckpointManager(lock).save(0, slices, "{}");
  }

  const Scratch scratch_;
  std::unique_ptr<Comm> comm_ =
      abstract_comm(0, std::vector<std::string>(4, "abstract"), Device::cpu());
  const Mesh mesh_{{{"data", 2}, {"model", 2}}, comm_.get()};
  const Sharding sharding_{mesh_, standard_logical_axis_rules({.parameter_partitioning_dims = 2})};
  const Sharding::Use use_{sharding_};
  Parameters parameters_;
  std::optional<Trainer> trainer_;
  int64_t shard_ = 0;  // bytes
};

TEST_F(StateMemory, RestoringTakesLittleMoreThanTheShard) {
  ASSERT_EQ(shard_, int64_t{3} * 4096 * 4096 * 4 / 4);
  write_whole();
  forget_peak();
  const int64_t before = peak_bytes();
  const NativeCheckpointReader reader(checkpoint_path(scratch_.path(), 0));
  reader.verify(0, 4);
  load_arrays(reader, *trainer_);
  EXPECT_LT(peak_bytes() - before, shard_ / 5);  // the shard itself is there already
  EXPECT_EQ(trainer_->state().front().view.data<float>()[0], 0.0f);
}

TEST_F(StateMemory, SavingInTheBackgroundTakesOneCopyOfTheShard) {
  StateSlices state = to_slices(*trainer_, "float32");
  for (TensorSlice& slice : state.slices) {  // no other rank writes here
    slice.global_shape = slice.sizes;
    std::fill(slice.origin.begin(), slice.origin.end(), 0);
  }
  const FolderLock lock(scratch_.path());
  CheckpointManager manager(lock);
  forget_peak();
  const int64_t before = peak_bytes();
  manager.save_async(1, state.slices, "{}");
  manager.finish();
  const int64_t taken = peak_bytes() - before;
  EXPECT_GT(taken, shard_ / 10 * 9);  // the copy: the measure measures
  EXPECT_LT(taken, shard_ / 10 * 12);
}

}  // namespace
}  // namespace quintet
