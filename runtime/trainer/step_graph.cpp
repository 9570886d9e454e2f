#include "runtime/trainer/step_graph.h"

#include <cstdio>
#include <optional>

#include "kernels/step_keys.h"
#include "runtime/abstract/step_clock.h"
#include "runtime/base/memory/out_of_memory.h"
#include "runtime/execution/rank_sums.h"
#include "runtime/execution/tape.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mesh/sharding.h"
#include "runtime/profile/profile.h"
#include "runtime/profile/step_log.h"
#include "runtime/trainer/step_feeds.h"

namespace quintet {
namespace {

/// Those who look at each op would see none of a recording.
bool is_watched() {
  const ExecutionContext& context = ExecutionContext::current();
  return context.profile != nullptr || context.clock != nullptr || context.log != nullptr;
}

/// Those of the mesh of this thread; nullptr where there is none.
std::unique_ptr<RecordedCollectives> record_collectives() {
  const Sharding* sharding = ExecutionContext::current().sharding;
  if (sharding == nullptr) return nullptr;
  auto collectives = sharding->ranks()->comm()->record();
  if (collectives == nullptr) throw NotRecordable("its ranks talk through ordinary memory");
  return collectives;
}

/// Whether a rank cannot record, whether this is the first such, and whether else one is to record again.
struct Refusals {
  bool any, is_first, again;
};

/// Recorded collectives are met by recorded ones: all ranks launch their recordings or none does, and they record
/// equally often.
Refusals refusals_of_ranks(bool refused, bool again) {
  const Sharding* sharding = ExecutionContext::current().sharding;
  if (sharding == nullptr) return {refused, refused, again && !refused};
  const double mine =
      refused ? 1 + static_cast<double>(sharding->size() - sharding->index_in(sharding->axes()))
              : static_cast<double>(again);
  double most = mine;
  reduce_over_ranks({&most, 1}, sharding->axes(), Reduction::max);
  return {most > 1, refused && most == mine, most == 1};
}

}  // namespace

struct StepGraph::Recorded {
  explicit Recorded(Key key) : keys(key) {}
  void launch() const {
    const auto work = [this] { recording->launch(); };
    collectives == nullptr ? work() : collectives->launch(work);
  }

  StepKeys keys;
  StepFeeds feeds;
  std::unique_ptr<RecordedCollectives> collectives;  // on a mesh
  std::unique_ptr<Recording> recording;
  std::vector<LossOutput> losses;
  std::vector<Tensor> gradients;  // of the parameters, in their order
};

StepGraph::StepGraph(Parameters& parameters, Work work, bool may_record)
    : parameters_(parameters), work_(std::move(work)), may_record_(may_record) {}
StepGraph::~StepGraph() = default;

void StepGraph::forget() { recorded_.reset(); }

std::vector<LossOutput> StepGraph::run_now(const HostArrays& batch, Key key) const {
  std::vector<LossOutput> losses;
  work_(batch, key, [&](const LossOutput& loss) { losses.push_back(loss); });
  return losses;
}

/// All that a recording takes for granted.
std::string StepGraph::shape_of(const HostArrays& batch) const {
  std::string shape;
  for (const auto& [name, array] : batch)
    shape +=
        fmt::format("{} {} {}\n", name, static_cast<int>(array.dtype), fmt::join(array.shape, ","));
  for (const ParamInfo& info : parameters_.all())
    shape += fmt::format("{} ", info.used().local().pointer);
  return shape;
}

/// Returns what it took.
std::vector<BlockLife> StepGraph::record_into(Recorded& recorded, const HostArrays& batch,
                                              Key key) {
  recorded.collectives = record_collectives();
  if (!placement_) placement_ = place_blocks(blocks_);
  const MemoryPlacement::Use use(*placement_);
  MemoryTrace trace(Device::current().memory());
  recorded.recording = Device::current().record([&] {
    const StepKeys::Recording keys(recorded.keys);
    const StepFeeds::Recording feeds(recorded.feeds);
    work_(batch, key, [&](const LossOutput& loss) { recorded.losses.push_back(loss); });
    if (recorded.collectives != nullptr) recorded.collectives->close();
  });
  for (const ParamInfo& info : parameters_.all()) recorded.gradients.push_back(info.used().grad());
  return trace.close();
}

/// A recording runs nothing, so one that took something else than what its places are made for is made once more,
/// with places for what it took: on a mesh the first step does not gather ahead yet. One whose places find no room
/// is made without any, and then placed.
void StepGraph::record(const HostArrays& batch, Key key) {
  constexpr int kMostRecordings = 3;
  bool again = true;
  for (int made = 1; again; ++made) {
    auto recorded = std::make_unique<Recorded>(key);
    std::optional<std::string> refused;
    std::vector<BlockLife> blocks;
    try {
      blocks = record_into(*recorded, batch, key);
      again = made < kMostRecordings && blocks != blocks_;
    } catch (const OutOfMemory& error) {
      again = made <= kMostRecordings && !blocks_.empty();
      if (!again) refused = error.what();
    } catch (const Error& error) {
      refused = error.what();
    }
    for (const ParamInfo& info : parameters_.all()) info.used().set_grad({});
    const Refusals refusals = refusals_of_ranks(refused.has_value(), again);
    if (blocks != blocks_) placement_.reset();
    blocks_ = std::move(blocks);
    again = refusals.again;
    may_record_ = !refusals.any;
    if (may_record_ && !again) recorded_ = std::move(recorded);
    if (refusals.is_first) fmt::print(stderr, "steps are not recorded as a graph: {}\n", *refused);
  }
}

std::vector<LossOutput> StepGraph::run(const HostArrays& batch, Key key) {
  launched_ = false;
  if (!may_record_ || is_watched()) return run_now(batch, key);
  std::string shape = shape_of(batch);
  if (shape != shape_) {  // a first step makes plans and shows whether there is a second
    recorded_.reset();
    MemoryTrace trace(Device::current().memory());
    std::vector<LossOutput> losses = run_now(batch, key);
    shape_ = std::move(shape);
    blocks_ = trace.close();
    placement_.reset();
    return losses;
  }
  if (recorded_ == nullptr) record(batch, key);
  if (recorded_ == nullptr) return run_now(batch, key);
  recorded_->keys.set(key);
  recorded_->feeds.read(batch);
  recorded_->launch();
  launched_ = true;
  size_t i = 0;
  for (const ParamInfo& info : parameters_.all()) info.used().set_grad(recorded_->gradients[i++]);
  return recorded_->losses;
}

}  // namespace quintet
