#include "runtime/trainer/step_graph.h"

#include <cstdio>

#include "kernels/step_keys.h"
#include "runtime/abstract/step_clock.h"
#include "runtime/execution/tape.h"
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

/// Asked for when the step is queued; `batch` must stay until then.
std::function<Metrics()> metrics_of(std::vector<StepLoss> losses, const HostArrays& batch) {
  return [losses = std::move(losses), &batch] {
    Metrics metrics;
    for (const StepLoss& loss : losses) merge_microbatch(metrics, loss.metrics(batch));
    return metrics;
  };
}

}  // namespace

struct StepGraph::Recorded {
  explicit Recorded(Key key) : keys(key) {}
  StepKeys keys;
  StepFeeds feeds;
  std::unique_ptr<Recording> recording;
  std::vector<StepLoss> losses;
  std::vector<Tensor> gradients;  // of the parameters, in their order
};

StepGraph::StepGraph(Parameters& parameters, Work work, bool may_record)
    : parameters_(parameters), work_(std::move(work)), may_record_(may_record) {}
StepGraph::~StepGraph() = default;

void StepGraph::forget() { recorded_.reset(); }

std::function<Metrics()> StepGraph::run_now(const HostArrays& batch, Key key) const {
  std::vector<StepLoss> losses;
  work_(batch, key, [&](const StepLoss& loss) { losses.push_back(loss); });
  return metrics_of(std::move(losses), batch);
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

void StepGraph::record(const HostArrays& batch, Key key) {
  auto recorded = std::make_unique<Recorded>(key);
  try {
    recorded->recording = Device::current().record([&] {
      const StepKeys::Recording keys(recorded->keys);
      const StepFeeds::Recording feeds(recorded->feeds);
      work_(batch, key, [&](const StepLoss& loss) { recorded->losses.push_back(loss); });
    });
    for (const ParamInfo& info : parameters_.all())
      recorded->gradients.push_back(info.used().grad());
    recorded_ = std::move(recorded);
  } catch (const Error& error) {
    may_record_ = false;
    fmt::print(stderr, "steps are not recorded as a graph: {}\n", error.what());
  }
  for (const ParamInfo& info : parameters_.all()) info.used().set_grad({});
}

std::function<Metrics()> StepGraph::run(const HostArrays& batch, Key key) {
  launched_ = false;
  if (!may_record_ || is_watched()) return run_now(batch, key);
  std::string shape = shape_of(batch);
  if (shape != shape_) {  // a first step makes plans and shows whether there is a second
    recorded_.reset();
    shape_ = std::move(shape);
    return run_now(batch, key);
  }
  if (recorded_ == nullptr) record(batch, key);
  if (recorded_ == nullptr) return run_now(batch, key);
  recorded_->keys.set(key);
  recorded_->feeds.read(batch);
  recorded_->recording->launch();
  launched_ = true;
  size_t i = 0;
  for (const ParamInfo& info : parameters_.all()) info.used().set_grad(recorded_->gradients[i++]);
  return metrics_of(recorded_->losses, batch);
}

}  // namespace quintet
