#include "apps/plan/search.h"

#include <algorithm>
#include <thread>

#include "runtime/base/thread_pool.h"

namespace quintet {
namespace {

class ChoiceOfLayout {
 public:
  ChoiceOfLayout(const LayoutCase& what, const TrainingLayout& layout, const SimulatedJob& job,
                 double model_flops)
      : what_(what), layout_(layout), job_(job), model_flops_(model_flops) {}

  LayoutRow best() {
    const bool may_round = what_.options.gradient_dtype == DType::f32 &&
                           what_.options.reduction == GradientReduction::microbatch;
    if (!try_both({}) && !try_smaller(false) && may_round) try_smaller(true);
    return best_;
  }

 private:
  /// With microbatches, remat and an optimizer on the host; whether one of them runs.
  bool try_smaller(bool rounded) {
    const int64_t rows =
        what_.batch(0).begin()->second.shape.at(0) * layout_.model / layout_.ranks();
    for (const bool offload : {false, true})
      for (const bool remat : {false, true}) {
        if ((offload && job_.machine.host_link_bytes == 0) || (remat && !what_.make_remat))
          continue;
        for (int64_t parts = 1; parts <= rows; parts *= 2)
          if (try_both(
                  {.microbatches = parts, .remat = remat, .offload = offload, .rounded = rounded}))
            return true;
      }
    return false;
  }

  /// With microbatches one after the other and in turns; whether one of them runs.
  bool try_both(StepChoice choice) {
    keep_better(choice);
    choice.microbatches = std::max<int64_t>(choice.microbatches, 2);
    choice.interleave = true;
    if (layout_.ranks() > 1) keep_better(choice);
    return best_.runs();
  }

  void keep_better(const StepChoice& choice) {
    LayoutCase what = what_;
    if (choice.remat) what.make = what_.make_remat;
    what.options.num_microbatches = choice.microbatches;
    what.options.interleave = choice.interleave;
    what.options.optimizer_offload = choice.offload;
    if (choice.rounded) what.options.gradient_dtype = DType::bf16;
    LayoutRow row = plan_layout(what, layout_, job_, model_flops_);
    row.flags = choice.flags();
    const auto order = [](const LayoutRow& r) {
      return std::tuple(!r.refused.empty(), !r.runs(),
                        r.runs() ? r.seconds : static_cast<double>(MemoryMeter::sum(r.memory)));
    };
    if (!any_ || order(row) < order(best_)) best_ = std::move(row);
    any_ = true;
  }

  const LayoutCase& what_;
  const TrainingLayout layout_;
  const SimulatedJob& job_;
  const double model_flops_;
  LayoutRow best_{.layout = {}};
  bool any_ = false;
};

}  // namespace

std::string StepChoice::flags() const {
  std::string flags;
  if (microbatches > 1)
    flags += fmt::format(" --gin.trainer.Trainer.num_microbatches={}", microbatches);
  if (interleave) flags += " --interleave_microbatches";
  if (remat) flags += " --gin.network.T5Config.remat_policy=\"'full'\"";
  if (offload) flags += " --optimizer_offload";
  if (rounded) flags += " --gradient_dtype=bfloat16";
  return flags.empty() ? flags : flags.substr(1);
}

std::vector<LayoutRow> search_layouts(const LayoutCase& what,
                                      const std::vector<TrainingLayout>& layouts,
                                      const SimulatedJob& job, double model_flops) {
  std::vector<LayoutRow> rows(layouts.size());
  const auto threads = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
  ThreadPool("to plan layouts", threads).for_each(std::ssize(layouts), [&](int64_t i) {
    const auto k = static_cast<size_t>(i);
    rows[k] = ChoiceOfLayout(what, layouts[k], job, model_flops).best();
  });
  std::stable_sort(rows.begin(), rows.end(), [](const LayoutRow& a, const LayoutRow& b) {
    return std::tuple(!a.runs(), a.seconds) < std::tuple(!b.runs(), b.seconds);
  });
  return rows;
}

}  // namespace quintet
