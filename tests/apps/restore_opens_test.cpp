// How often the ranks of a job open the files of a checkpoint that they restore.

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdarg>
#include <set>

#include "apps/process/ranks.h"
#include "apps/train/state/state_arrays.h"
#include "checkpoint/manifest.h"
#include "runtime/mesh/collectives/collectives_threads.h"
#include "runtime/mesh/rules.h"
#include "runtime/mesh/sharding.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "tests/checkpoint/scratch.h"

namespace {
std::atomic<int64_t> opened_files{0}, opened_manifests{0};
}  // namespace

/// The program's calls of open(2) come here.
extern "C" int open(const char* path, int flags, ...) {
  using Open = int (*)(const char*, int, ...);
  static const auto real = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "open"));
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  const std::string_view name(path);
  if (name.find("/checkpoint_") != std::string_view::npos && (flags & O_DIRECTORY) == 0)
    (name.ends_with("MANIFEST.json") ? opened_manifests : opened_files) += 1;
  return real(path, flags, mode);
}

namespace quintet {
namespace {

using testing::Scratch;

void declare(Parameters& parameters) {
  const Scope root(parameters);
  const auto ones = ones_initializer();
  for (const char* layer : {"layer_0", "layer_1", "layer_2"})
    (root / layer).param("kernel", {{"embed", 32}, {"mlp", 64}}, ones);
  (root / "bias").param("table", {{"heads", 32}}, ones);  // all of it on every rank
}

/// Files of the checkpoint that hold something of this rank's arrays.
size_t files_needed(const Manifest& manifest, Trainer& trainer) {
  std::set<size_t> files;
  for (const TensorSlice& own : to_slices(trainer, "float32").slices) {
    if (!own.name.starts_with("target/") && !own.name.starts_with("state/param_states/")) continue;
    for (const ManifestSlice& slice : manifest.tensors.at(own.name).slices) {
      bool shared = true;
      for (size_t d = 0; d < own.sizes.size(); ++d)
        shared = shared && slice.origin[d] < own.origin[d] + own.sizes[d] &&
                 own.origin[d] < slice.origin[d] + slice.sizes[d];
      if (shared) files.insert(slice.file);
    }
  }
  return files.size();
}

/// A trainer on a mesh of all ranks; `use` gets it with what the ranks save together.
void on_mesh(Comm& comm, const std::filesystem::path& folder,
             const std::function<void(CheckpointManager&, Trainer&, const Mesh&)>& use) {
  const Mesh mesh({{"data", comm.size()}, {"model", 1}}, &comm);
  const Sharding sharding(mesh, standard_logical_axis_rules({.parameter_partitioning_dims = 2}));
  const Sharding::Use on(sharding);
  Parameters parameters;
  declare(parameters);
  parameters.initialize(key_from_seed(0));
  Trainer trainer(LossFunction{}, parameters, adafactor({.min_dim_size_to_factor = 8}),
                  TrainerOptions{}, key_from_seed(0));
  const auto lock = comm.rank() == 0 ? FolderLock(folder) : FolderLock::held_by_leader(folder);
  CheckpointManager manager(lock,
                            {.run_id = "r", .hosts = writers_of(comm.channel(), comm.size())});
  use(manager, trainer, mesh);
}

// 512 ranks whose arrays are sharded over all of them open 1 + 2 x 513 + 512 files; if each looked at
// all, 512 x 514.
TEST(RestoreOpens, TheFolderIsLookedAtOnceAndAFileIsOpenedOnce) {
  for (const int ranks : {2, 4, 8}) {
    const Scratch scratch;
    const auto folder = scratch.path() / "run";
    run_ranks(ranks, [&](Comm& comm) {
      on_mesh(comm, folder, [](CheckpointManager& manager, Trainer& trainer, const Mesh& mesh) {
        StateSlices state = to_slices(trainer, "float32");
        drop_replicas(state, mesh);
        manager.save(0, state.slices, "{}");
      });
    });
    const Manifest manifest = read_manifest(checkpoint_path(folder, 0));
    std::atomic<size_t> needed = 0;
    opened_files = opened_manifests = 0;
    run_ranks(ranks, [&](Comm& comm) {
      on_mesh(comm, folder, [&](CheckpointManager& manager, Trainer& trainer, const Mesh&) {
        const auto latest = manager.latest_whole();
        ASSERT_NE(latest, nullptr);
        load_arrays(*latest, trainer);
        needed += files_needed(manifest, trainer);
      });
    });
    const auto files = static_cast<int64_t>(manifest.files.size());
    EXPECT_EQ(opened_manifests, 1);
    // The leader asks for the sizes; all verify; each reads.
    EXPECT_EQ(opened_files, 2 * files + static_cast<int64_t>(needed)) << ranks << " ranks";
    EXPECT_EQ(files, ranks + 1);
  }
}

}  // namespace
}  // namespace quintet
