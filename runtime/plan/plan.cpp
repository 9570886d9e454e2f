#include "runtime/plan/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "runtime/mesh/reshard_plan.h"

namespace quintet {
namespace {

/// Letters of the dimensions of an operand; leading dimensions are "0", "1", ... Of a merged axis the
/// first letter is the one that can be sharded.
std::vector<std::string> letters_of(const RuleOperand& operand, size_t rank) {
  std::vector<std::string> letters;
  for (size_t i = 0; i + operand.terms.size() < rank; ++i) letters.push_back(std::to_string(i));
  for (const RuleTerm& term : operand.terms) letters.emplace_back(1, term.letters.front());
  return letters;
}

bool contains(const MeshAxes& axes, const std::string& axis) {
  return std::ranges::find(axes, axis) != axes.end();
}

using Assignment = std::map<std::string, MeshAxes>;  // letter -> mesh axes, outermost first

class Planner {
 public:
  Planner(const Op& op, const Tensors& inputs, const std::vector<ResultShape>& shapes,
          const Attrs& sizes, const OutputMask& make, const Sharding& sharding)
      : op_(op),
        inputs_(inputs),
        shapes_(shapes),
        make_(make),
        sharding_(sharding),
        row_axes_(sharding.row_axes()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const RuleOperand& operand = op.rule.inputs[i];
      in_letters_.push_back(inputs[i] ? letters_of(operand, inputs[i].spec().axes.size())
                                      : std::vector<std::string>());
      if (inputs[i]) note(operand, in_letters_.back(), inputs[i].global_slice(), sizes);
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      const RuleOperand& operand = op.rule.outputs[i];
      out_letters_.push_back(make[i] ? letters_of(operand, shapes[i].spec.axes.size())
                                     : std::vector<std::string>());
      targets_.push_back(make[i] ? sharding.place(shapes[i].spec) : Layout());
      if (make[i]) note(operand, out_letters_.back(), shapes[i].global_slice, sizes);
    }
    for (const auto& letters : in_letters_) in_inputs_.insert(letters.begin(), letters.end());
  }

  Plan run() {
    std::vector<std::vector<std::string>> choices;
    for (const Axis& axis : sharding_.mesh()) choices.push_back(choices_for(axis));
    using Cost = std::tuple<int64_t, int64_t, double>;  // idle axes, moved parameters, bytes
    std::optional<Cost> least;
    Plan best;
    std::vector<size_t> at(choices.size(), 0);
    do {
      std::optional<Plan> plan = try_out(choices, at);
      if (!plan) continue;
      const auto idle = std::count_if(plan->works_on.begin(), plan->works_on.end(),
                                      [](const auto& work) { return work.second.empty(); });
      const Cost cost{idle, moved_parameters(*plan), plan->cost};
      if (least && *least <= cost) continue;
      least = cost;
      best = std::move(*plan);
    } while (advance(at, choices));
    if (!least)
      throw Bug(
          fmt::format("{}: operands that stay as they come are sharded differently", op_.name));
    for (size_t i = 0; i < shapes_.size(); ++i)  // refuses what does not divide
      if (make_[i] && best.blocks[i] == 0)
        sharding_.block(fmt::format("{}: result", op_.name), shapes_[i].spec, best.targets[i],
                        shapes_[i].global_slice);
    return best;
  }

 private:
  /// What an operand or a result says about its letters.
  void note(const RuleOperand& operand, const std::vector<std::string>& letters,
            const Block& global_slice, const Attrs& sizes) {
    const size_t lead = letters.size() - operand.terms.size();
    for (size_t i = 0; i < letters.size(); ++i) {
      const RuleTerm* term = i < lead ? nullptr : &operand.terms[i - lead];
      if (term != nullptr && term->unsharded) unsharded_.insert(letters[i]);
      if (term != nullptr && term->fixed) fixed_.insert(term->letters);
      if (term != nullptr && term->statistics) {
        statistics_.insert(letters[i]);
        if (op_.phases == nullptr) unsharded_.insert(letters[i]);
      }
      if (term != nullptr && term->per_block) continue;
      sizes_[letters[i]].insert(term != nullptr && term->letters.size() > 1
                                    ? sizes.get<int64_t>(letters[i])
                                    : global_slice.sizes[i]);
    }
  }

  bool feasible(const std::string& letter, int64_t parts) const {
    const auto& sizes = sizes_.at(letter);
    return !unsharded_.contains(letter) &&
           std::all_of(sizes.begin(), sizes.end(), [&](int64_t s) { return s % parts == 0; });
  }

  /// Letters on which a mesh axis may work; "" (none) comes last.
  std::vector<std::string> choices_for(const Axis& axis) const {
    std::vector<std::string> activations, parameters, results;
    const auto add = [&](std::vector<std::string>& to, const std::string& letter) {
      if (feasible(letter, axis.size) && std::find(to.begin(), to.end(), letter) == to.end())
        to.push_back(letter);
    };
    const auto for_sharded = [&](const Layout& layout, const std::vector<std::string>& letters,
                                 const auto& body) {
      for (size_t d = 0; d < letters.size(); ++d)
        if (std::find(layout.dims[d].begin(), layout.dims[d].end(), axis.name) !=
            layout.dims[d].end())
          body(letters[d]);
    };
    if (axis.size > 1) {
      for (size_t i = 0; i < inputs_.size(); ++i)
        if (inputs_[i])
          for_sharded(inputs_[i].layout(), in_letters_[i], [&](const std::string& letter) {
            add(op_.rule.inputs[i].parameter ? parameters : activations, letter);
          });
      for (size_t i = 0; i < targets_.size(); ++i)
        for_sharded(targets_[i], out_letters_[i], [&](const std::string& letter) {
          if (sizes_.contains(letter)) add(results, letter);
        });
    }
    std::vector<std::string> choices = !activations.empty()  ? activations
                                       : !parameters.empty() ? parameters
                                                             : results;
    if (!shards_rows(axis.name))
      for (const std::string& letter : parameters) add(choices, letter);
    // A result may be wanted sharded where a parameter is, or along an axis that no operand has.
    for (const std::string& letter : results)
      if (std::find(parameters.begin(), parameters.end(), letter) != parameters.end() ||
          !in_inputs_.contains(letter))
        add(choices, letter);
    choices.emplace_back();
    return choices;
  }

  static bool advance(std::vector<size_t>& at,
                      const std::vector<std::vector<std::string>>& choices) {
    for (size_t i = at.size(); i-- > 0;) {
      if (++at[i] < choices[i].size()) return true;
      at[i] = 0;
    }
    return false;
  }

  /// Mesh axes by letter, those of one letter in the order in which an operand has them.
  Assignment assign(const std::vector<std::vector<std::string>>& choices,
                    const std::vector<size_t>& at) const {
    Assignment assignment;
    for (size_t i = 0; i < at.size(); ++i)
      if (!choices[i][at[i]].empty())
        assignment[choices[i][at[i]]].push_back(sharding_.mesh()[i].name);
    for (auto& [letter, axes] : assignment)
      if (axes.size() > 1) order(letter, axes);
    return assignment;
  }

  void order(const std::string& letter, MeshAxes& axes) const {
    const auto by = [&](const MeshAxes& order) {
      const auto place = [&](const std::string& axis) {
        return std::find(order.begin(), order.end(), axis) - order.begin();
      };
      std::stable_sort(axes.begin(), axes.end(), [&](const std::string& a, const std::string& b) {
        return place(a) < place(b);
      });
    };
    for (size_t i = 0; i < targets_.size(); ++i)
      for (size_t d = 0; d < out_letters_[i].size(); ++d)
        if (out_letters_[i][d] == letter) by(targets_[i].dims[d]);
    for (size_t i = inputs_.size(); i-- > 0;)
      for (size_t d = 0; d < in_letters_[i].size(); ++d)
        if (in_letters_[i][d] == letter) by(inputs_[i].layout().dims[d]);
  }

  std::optional<Plan> try_out(const std::vector<std::vector<std::string>>& choices,
                              const std::vector<size_t>& at) const {
    const Assignment assignment = assign(choices, at);
    Plan plan;
    for (const auto& [letter, axes] : assignment) {
      if (!feasible(letter, parts_of(axes, sharding_.mesh()))) return std::nullopt;
      plan.in_phases |= statistics_.contains(letter);
    }
    for (size_t i = 0; i < at.size(); ++i)
      plan.works_on.emplace_back(sharding_.mesh()[i].name, choices[i][at[i]]);
    const auto layout_for = [&](const std::vector<std::string>& letters) {
      Layout layout = Layout::replicated(letters.size());
      for (size_t d = 0; d < letters.size(); ++d)
        if (const auto found = assignment.find(letters[d]); found != assignment.end())
          layout.dims[d] = found->second;
      return layout;
    };
    for (size_t i = 0; i < inputs_.size(); ++i) {
      plan.inputs.push_back(layout_for(in_letters_[i]));
      if (inputs_[i] && !stays(i, plan.inputs[i])) return std::nullopt;
      if (inputs_[i])
        plan.cost += cost_of_move(inputs_[i].spec(), inputs_[i].global_slice(), inputs_[i].layout(),
                                  plan.inputs[i]);
    }
    for (size_t i = 0; i < shapes_.size(); ++i) add_result(plan, i, layout_for(out_letters_[i]));
    return plan;
  }

  double cost_of_move(const Spec& spec, const Block& global_slice, const Layout& from,
                      const Layout& to) const {
    return cost_of(reshard_plan(spec, global_slice, from, to, sharding_.mesh(), sharding_.links()),
                   sharding_.links());
  }

  bool shards_rows(const std::string& axis) const { return contains(row_axes_, axis); }

  /// Parameters that leave where a mesh axis shards them which shards no rows, and gradients of parameters
  /// so sharded that are a sum over such an axis.
  int64_t moved_parameters(const Plan& plan) const {
    int64_t moved = 0;
    for (const Axis& axis : sharding_.mesh()) {
      if (axis.size == 1 || shards_rows(axis.name)) continue;
      for (size_t i = 0; i < inputs_.size(); ++i)
        if (inputs_[i] && op_.rule.inputs[i].parameter)
          for (size_t d = 0; d < plan.inputs[i].dims.size(); ++d)
            moved += contains(inputs_[i].layout().dims[d], axis.name) &&
                     !contains(plan.inputs[i].dims[d], axis.name);
      for (size_t i = 0; i < shapes_.size(); ++i)
        moved += make_[i] && contains(plan.results[i].partial, axis.name) &&
                 is_gradient_of_parameter(shapes_[i].spec) &&
                 std::ranges::any_of(targets_[i].dims, [&](const MeshAxes& axes) {
                   return contains(axes, axis.name);
                 });
    }
    return moved;
  }
  static bool is_gradient_of_parameter(const Spec& result) {
    return std::ranges::none_of(result.axes,
                                [](const Axis& axis) { return axis.name == axis::kBatch; });
  }

  /// Whether an operand's fixed axes are sharded as they come.
  bool stays(size_t i, const Layout& layout) const {
    const auto& terms = op_.rule.inputs[i].terms;
    const size_t lead = layout.dims.size() - terms.size();
    for (size_t t = 0; t < terms.size(); ++t)
      if (terms[t].fixed && layout.dims[lead + t] != inputs_[i].layout().dims[lead + t])
        return false;
    return true;
  }

  void add_result(Plan& plan, size_t i, Layout layout) const {
    plan.blocks.push_back(0);
    if (make_[i]) {
      const size_t lead = layout.dims.size() - op_.rule.outputs[i].terms.size();
      for (size_t d = lead; d < layout.dims.size(); ++d)
        if (op_.rule.outputs[i].terms[d - lead].per_block)
          plan.blocks[i] = parts_of(layout.dims[d], sharding_.mesh());
      for (const auto& [axis, letter] : plan.works_on)
        if (!letter.empty() && std::find(out_letters_[i].begin(), out_letters_[i].end(), letter) ==
                                   out_letters_[i].end())
          layout.partial.push_back(axis);
    }
    const bool saved = op_.rule.outputs[i].optional && op_.vjp != nullptr;
    Layout target = saved ? layout : targets_[i];
    const auto& terms = op_.rule.outputs[i].terms;
    for (size_t t = 0, d = target.dims.size() - terms.size(); make_[i] && t < terms.size();
         ++t, ++d)
      if (fixed_.contains(terms[t].letters)) fix(target, d, layout.dims[d]);
    // An axis that no rule names stays as it comes, unless its mesh axis is wanted elsewhere.
    for (size_t d = 0; d < target.dims.size(); ++d)
      if (!sharding_.rules_know(shapes_[i].spec.axes[d].name) && unused(target, layout.dims[d]))
        target.dims[d] = layout.dims[d];
    if (make_[i] && plan.blocks[i] == 0)
      plan.cost += cost_of_move(shapes_[i].spec, shapes_[i].global_slice, layout, target);
    plan.results.push_back(std::move(layout));
    plan.targets.push_back(std::move(target));
  }

  /// Dimension d is sharded over `axes`, which then shard no other.
  static void fix(Layout& layout, size_t d, const MeshAxes& axes) {
    for (MeshAxes& others : layout.dims)
      std::erase_if(others, [&](const std::string& axis) {
        return std::find(axes.begin(), axes.end(), axis) != axes.end();
      });
    layout.dims[d] = axes;
  }

  static bool unused(const Layout& layout, const MeshAxes& axes) {
    for (const MeshAxes& used : layout.dims)
      for (const std::string& axis : axes)
        if (std::find(used.begin(), used.end(), axis) != used.end()) return false;
    return true;
  }

  const Op& op_;
  const Tensors& inputs_;
  const std::vector<ResultShape>& shapes_;
  const OutputMask& make_;
  const Sharding& sharding_;
  const MeshAxes row_axes_;
  std::vector<std::vector<std::string>> in_letters_, out_letters_;
  std::vector<Layout> targets_;
  std::set<std::string> unsharded_, statistics_, in_inputs_;
  std::set<std::string> fixed_;  // unsharded terms
  std::map<std::string, std::set<int64_t>> sizes_;
};

}  // namespace

Plan plan_op(const Op& op, const Tensors& inputs, const std::vector<ResultShape>& shapes,
             const Attrs& attrs, const OutputMask& make, const Sharding& sharding) {
  return Planner(op, inputs, shapes, select_sizes(op.rule, attrs), make, sharding).run();
}

std::string to_string(const Plan& plan) {
  std::string text;
  for (const auto& [axis, letter] : plan.works_on)
    if (!letter.empty()) text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", axis, letter);
  return text;
}

}  // namespace quintet
