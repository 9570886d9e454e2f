#include "runtime/optim/optax/amos.h"

#include <cmath>

#include "kernels/gpu/gpu_kernels.h"
#include "runtime/optim/optax/elementwise.h"
#include "runtime/optim/optax/moments.h"

namespace quintet {
namespace {

rules::Amos rule_at(const AmosOptions& o, int32_t count) {
  const float rate = value_at(o.learning_rate, count + 1);
  return {f32(o.beta),   f32(1 - o.beta), 1.0f / bias_correction(o.beta, count + 1),
          rate,          rate * rate,     f32(o.c_coef) * std::sqrt(rate),
          f32(o.d_coef), f32(o.extra_l2), f32(o.epsilon)};
}

Shape shape_of(const ParamSlot& slot) {
  Shape shape;
  for (const Axis& axis : slot.axes) shape.push_back(axis.size);
  return shape;
}

/// The size that numbers of a parameter are expected to have.
float eta_of(const AmosOptions& o, const ParamSlot& slot) {
  const double eta = o.eta_fn(slot.name, shape_of(slot));
  QT_CHECK(std::isfinite(f32(eta)) && eta >= 0,
           "eta_fn: of parameter {} it is {}; a size is 0 or more", slot.name, eta);
  return f32(eta);
}

/// A parameter's states v and b, of which a number belongs to a cell (kernels/optimizers/amos_cells.h).
struct SmallStates {
  StateBuffer v, b;
  Buffer sums, factors;
  std::string name;
  std::vector<std::string> axes;
  MeshAxes shards, summed_over;  // mesh axes of the axes that are kept, and of the reduced ones
  AmosCells cells;
};

/// States of the shape that shape_fn gives.
class RunningSmallAmos final : public RunningAs<AmosOptions> {
 public:
  using RunningAs::RunningAs;

  void init(std::span<const ParamSlot> params) override {
    count_ = host_count();
    states_.clear();
    for (const ParamSlot& slot : params) states_.push_back(small_states(slot));
  }

  void update(Updates& updates) override {
    const std::vector<ParamSlot> slots = updates.slots();
    std::vector<AmosCells> arrays;
    for (size_t i = 0; i < slots.size(); ++i) {
      AmosCells& cells = arrays.emplace_back(states_[i].cells);
      cells.gradient = FloatPointer(slots[i].grad);
      cells.param = slots[i].param.data<float>();
      cells.not_finite = slots[i].not_finite;
    }
    Device& device = Device::current();
    const rules::Amos rule = rule_at(what(), count_.count());
    if (device.is_cpu()) {
      cpu::sum_amos_cells(arrays);
      sum_over(updates.args.reducer);
      cpu::update_amos_cells(arrays, rule);
    } else {
      device.kernels().sum_amos_cells(arrays, device.stream());
      for (const SmallStates& s : states_)
        if (!s.summed_over.empty()) updates.args.reducer->sum_on_device(sums_of(s), s.summed_over);
      device.kernels().update_amos_cells(arrays, rule, updates.args.control, device.stream());
    }
    ++count_.count();
    updates.changed();
  }
  void take_back() override { --count_.count(); }
  void add_state(const std::string& prefix, std::vector<StateArray>& arrays) const override {
    arrays.push_back(state_of(prefix + "count", count_));
    for (const auto& [name, member] :
         {std::pair{"v", &SmallStates::v}, std::pair{"b", &SmallStates::b}})
      for (const SmallStates& s : states_)
        arrays.push_back({fmt::format("{}{}/{}", prefix, name, s.name), s.axes, (s.*member).view,
                          (s.*member).device, s.shards});
  }
  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot>) const override {
    sum_over(args.reducer);
  }

 private:
  static std::span<double> sums_of(const SmallStates& s) {
    return {s.cells.sums, static_cast<size_t>(s.cells.cells)};
  }
  void sum_over(Reducer* reducer) const {
    Bucket bucket;
    for (const SmallStates& s : states_) bucket.add(sums_of(s), s.summed_over);
    bucket.sum(reducer);
  }

  SmallStates small_states(const ParamSlot& slot) const {
    const Shape shape = shape_of(slot), small = what().shape_fn(slot.name, shape);
    const bool fits = small.empty() || small.size() == shape.size();
    for (size_t axis = 0; axis < small.size(); ++axis)
      QT_CHECK(fits && (small[axis] == 1 || small[axis] == shape[axis]),
               "shape_fn: parameter {} has the shape ({}), its states cannot have ({}): an axis is "
               "as the parameter's or 1, "
               "and () is one number",
               slot.name, fmt::join(shape, ", "), fmt::join(small, ", "));
    SmallStates s;
    s.name = slot.name;
    View kept = slot.param;
    s.cells.n = slot.param.elements();
    s.cells.rank = slot.param.rank;
    s.cells.sizes = slot.param.sizes;
    s.cells.eta = eta_of(what(), slot);
    int64_t stride = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
      const bool reduced = small.empty() || small[axis] != shape[axis];
      s.cells.strides[axis] = reduced ? 0 : stride;
      if (!reduced) stride *= slot.param.sizes[axis];
      if (reduced) {
        s.cells.members *= shape[axis];
        kept.sizes[axis] = kept.global[axis] = 1;
        kept.origin[axis] = 0;
      }
      if (axis < slot.mesh_axes.size()) {
        MeshAxes& into = reduced ? s.summed_over : s.shards;
        into.insert(into.begin(), slot.mesh_axes[axis].begin(), slot.mesh_axes[axis].end());
      }
    }
    s.cells.cells = stride;
    if (small.empty()) kept.rank = 0;
    for (int axis = 0; axis < kept.rank; ++axis)
      s.axes.push_back((small[static_cast<size_t>(axis)] == 1 ? "reduced_" : "") +
                       slot.axes[static_cast<size_t>(axis)].name);
    Device& device = Device::current();
    s.v = zero_state_like(kept, device);
    s.b = zero_state_like(kept, device);
    const MemoryScope scope(MemoryKind::kOptimizer);
    s.sums = device.memory().allocate(stride * static_cast<int64_t>(sizeof(double)));
    s.factors = device.memory().allocate(2 * stride * size_of(DType::f32));
    s.cells.v = s.v.floats();
    s.cells.b = s.b.floats();
    s.cells.sums = reinterpret_cast<double*>(s.sums.get());
    s.cells.decay = reinterpret_cast<float*>(s.factors.get());
    s.cells.rate = s.cells.decay + stride;
    return s;
  }

  StateBuffer count_;
  std::vector<SmallStates> states_;
};

}  // namespace

TransformationPtr scale_by_amos(const AmosOptions& o) {
  check_rate(o.beta, "scale_by_amos: beta");
  if (o.shape_fn) return transformation<RunningSmallAmos>(o);
  return elementwise({.slots = {{"v"}, {"b"}},
                      .counts = true,
                      .step = [=](int32_t count) { return RuleStep{rule_at(o, count)}; },
                      .factor = [=](const ParamSlot& slot) { return eta_of(o, slot); }});
}

TransformationPtr amos(const AmosOptimizerOptions& o) {
  std::vector<TransformationPtr> members;
  if (o.clip_value.value_or(0) > 0) members.push_back(clip(*o.clip_value));
  members.push_back(scale_by_amos(o));
  if (o.momentum.value_or(0) > 0) members.push_back(ema({.decay = *o.momentum, .debias = false}));
  return members.size() == 1 ? members[0] : chain(members);
}

}  // namespace quintet
