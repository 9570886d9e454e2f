// Every case of fixtures optim/: parameters after 1 and 5 updates and the state after 5, for
// Adafactor (t5x), and for optax's optimizers through t5x.optimizers.

#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/optax/optax.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

using testing::fixture_root;

/// Parameters and gradients of inputs.safetensors, as slots.
struct Problem {
  HostArrays inputs, params;
  std::vector<std::string> names;
  Json cases = Json::read(fixture_root() / "optim/cases.json");
  std::vector<double> learning_rates = cases["learning_rates"].as_doubles();

  Problem() : inputs(read_safetensors(fixture_root() / "optim/inputs.safetensors")) {
    for (const auto& [name, array] : inputs)
      if (name.starts_with("param/")) {
        names.push_back(name.substr(6));
        params[names.back()] = array;
      }
  }
  std::vector<ParamSlot> slots(HostArrays& gradients) {
    std::vector<ParamSlot> result;
    for (const std::string& name : names) {
      HostArray& param = params.at(name);
      HostArray& grad = gradients.at(name);
      const auto axis_names = cases["param_axes"][name].as_strings();
      Axes axes;
      for (size_t i = 0; i < axis_names.size(); ++i)
        axes.push_back({axis_names[i], param.shape[i]});
      result.push_back({name, axes, View::of(param.as<float>().data(), param.shape),
                        View::of(grad.as<float>().data(), grad.shape)});
    }
    return result;
  }
  HostArrays gradients(size_t step) const {
    HostArrays result;
    for (const std::string& name : names)
      result[name] = inputs.at(fmt::format("grad/{}/{}", step, name));
    return result;
  }
};

/// |a - b| <= 1e-7 + 1e-5 |b|, number by number.
void expect_near(std::span<const float> got, const HostArray& want, const std::string& what) {
  ASSERT_EQ(static_cast<int64_t>(got.size()), want.elements()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const float w = want.as<float>()[i];
    ASSERT_LE(std::abs(got[i] - w), 1e-7 + 1e-5 * std::abs(w))
        << what << " element " << i << ": got " << got[i] << ", want " << w;
  }
}

/// To a unit in the last place: numbers that differ in float32's last bits may be rounded apart.
void expect_rounded(const View& view, const HostArray& want, const std::string& what) {
  for (int64_t i = 0; i < view.elements(); ++i) {
    const auto got = static_cast<float>(view.data<bfloat16>()[i]);
    const auto w = static_cast<float>(want.as<bfloat16>()[static_cast<size_t>(i)]);
    ASSERT_LE(std::abs(got - w), std::abs(w) / 128) << what << " element " << i;
  }
}

void expect_params(const Problem& problem, const HostArrays& golden, size_t updates) {
  const std::string prefix = fmt::format("param/{}/", updates);
  if (!golden.contains(prefix + problem.names[0])) return;
  for (const std::string& name : problem.names)
    expect_near(problem.params.at(name).as<float>(), golden.at(prefix + name), prefix + name);
}

/// Every array of the golden state is ours, or a placeholder (one zero) that we leave out; we have
/// no others.
void expect_state(Optimizer& optimizer, const HostArrays& golden, size_t updates) {
  const std::string prefix = fmt::format("state/{}/", updates);
  std::map<std::string, View> ours;
  for (const StateArray& array : optimizer.state()) {
    EXPECT_EQ(array.axes.size(), static_cast<size_t>(array.view.rank)) << array.name;
    ours[array.name] = array.view;
  }
  for (const auto& [name, want] : golden) {
    if (!name.starts_with(prefix)) continue;
    const auto found = ours.find(name.substr(prefix.size()));
    if (found == ours.end()) {
      ASSERT_EQ(want.shape, std::vector<int64_t>{1}) << "missing: " << name;
      ASSERT_EQ(want.as<float>()[0], 0.0f) << "missing: " << name;
      continue;
    }
    const View view = found->second;
    ours.erase(found);
    if (want.dtype == DType::i32) {
      EXPECT_EQ(*view.data<int32_t>(), want.as<int32_t>()[0]) << name;
      continue;
    }
    ASSERT_EQ(std::vector<int64_t>(view.sizes.begin(), view.sizes.begin() + view.rank), want.shape)
        << name;
    ASSERT_EQ(view.dtype, want.dtype) << name;
    if (view.dtype == DType::bf16) {
      expect_rounded(view, want, name);
      continue;
    }
    expect_near({view.data<float>(), static_cast<size_t>(view.elements())}, want, name);
  }
  EXPECT_TRUE(ours.empty()) << "not in the reference: " << ours.begin()->first;
}

/// "step index 2: wi/kernel[1,1], norm/scale[0]": sets those gradients to NaN at that step.
void insert_nans(const Json& note, size_t step, HostArrays& gradients) {
  if (note.is_null()) return;
  std::string text = note.as_string();
  size_t at_step = 0;
  ASSERT_EQ(std::sscanf(text.c_str(), "step index %zu:", &at_step), 1) << text;
  if (at_step != step) return;
  text = text.substr(text.find(':') + 1);
  for (size_t open; (open = text.find('[')) != std::string::npos;) {
    const size_t name_begin = text.find_first_not_of(" ,"), close = text.find(']');
    HostArray& array = gradients.at(text.substr(name_begin, open - name_begin));
    int64_t flat = 0;
    size_t axis = 0;
    for (size_t digit = open + 1; digit < close; digit = text.find_first_of(",]", digit) + 1)
      flat = flat * array.shape[axis++] + std::stoll(text.substr(digit));
    array.as<float>()[static_cast<size_t>(flat)] = std::numeric_limits<float>::quiet_NaN();
    text = text.substr(close + 1);
  }
}

void read(const Json& o, const char* name, double& into) {
  if (o.has(name)) into = o[name].as_double();
}
void read(const Json& o, const char* name, std::optional<double>& into) {
  if (!o.has(name)) return;
  if (o[name].is_null())
    into.reset();
  else
    into = o[name].as_double();
}

AdafactorOptions adafactor_options(const Json& o, const Json& rules) {
  AdafactorOptions a;
  a.logical_factor_rules.emplace();
  for (const auto& [axis, dim] : rules.members())
    (*a.logical_factor_rules)[axis] = factor_dim_from_name(dim.as_string());
  if (o.has("logical_factor_rules") && o["logical_factor_rules"].is_null())
    a.logical_factor_rules.reset();
  if (o.has("factored")) a.factored = o["factored"].as_bool();
  if (o.has("multiply_by_parameter_scale"))
    a.multiply_by_parameter_scale = o["multiply_by_parameter_scale"].as_bool();
  if (o.has("skip_nan_updates")) a.skip_nan_updates = o["skip_nan_updates"].as_bool();
  if (o.has("dtype_momentum")) a.dtype_momentum = dtype_from_name(o["dtype_momentum"].as_string());
  if (o.has("step_offset")) a.step_offset = o["step_offset"].as_int();
  if (o.has("min_dim_size_to_factor"))
    a.min_dim_size_to_factor = o["min_dim_size_to_factor"].as_int();
  read(o, "beta1", a.beta1);
  read(o, "decay_rate", a.decay_rate);
  read(o, "clipping_threshold", a.clipping_threshold);
  read(o, "weight_decay_rate", a.weight_decay_rate);
  read(o, "epsilon1", a.epsilon1);
  read(o, "epsilon2", a.epsilon2);
  read(o, "weight_decay_rate_lr_exponent", a.weight_decay_rate_lr_exponent);
  read(o, "global_norm_clip_threshold", a.global_norm_clip_threshold);
  read(o, "max_parameter_scale", a.max_parameter_scale);
  return a;
}

/// "clip_by_global_norm(1.0)", "adamw(weight_decay=0.01)": name and arguments ("" for positional).
TransformationPtr parse_transformation(const std::string& text, const Schedule& rate) {
  const std::string name = text.substr(0, text.find('('));
  std::map<std::string, double> args;
  const std::string inside = text.substr(name.size() + 1, text.size() - name.size() - 2);
  for (size_t at = 0; at < inside.size();) {
    const size_t end = std::min(inside.find(',', at), inside.size());
    const std::string item = inside.substr(at, end - at);
    const size_t equals = item.find('=');
    if (equals == std::string::npos)
      args[""] = std::stod(item);
    else
      args[item.substr(item.find_first_not_of(' '), equals - item.find_first_not_of(' '))] =
          std::stod(item.substr(equals + 1));
    at = end + 1;
  }
  const auto get = [&](const char* key, double fallback) {
    return args.contains(key) ? args[key] : fallback;
  };
  if (name == "clip_by_global_norm") return clip_by_global_norm(args[""]);
  if (name == "clip") return clip(args[""]);
  if (name == "adamw") {
    AdamWOptions o;
    return adamw(rate, {get("b1", o.b1), get("b2", o.b2), get("eps", o.eps), o.eps_root,
                        get("weight_decay", o.weight_decay)});
  }
  if (name == "lion") {
    LionOptions o;
    return lion(rate, {get("b1", o.b1), get("b2", o.b2), get("weight_decay", o.weight_decay)});
  }
  throw Bug("the fixture has a transformation this test does not know: " + text);
}

/// The optimizer a case's name and members describe (fixtures' gen_optim.py).
TransformationPtr optax_case(const std::string& name, const Json& c, const Schedule& rate) {
  if (c.has("chain")) {
    std::vector<TransformationPtr> members;
    for (const std::string& text : c["chain"].as_strings())
      members.push_back(parse_transformation(text, rate));
    return chain(members);
  }
  if (name.starts_with("adamw")) {
    AdamWOptions o;
    read(c, "b1", o.b1), read(c, "b2", o.b2), read(c, "eps", o.eps);
    read(c, "weight_decay", o.weight_decay);
    return adamw(rate, o);
  }
  if (name.starts_with("adam")) {
    AdamOptions o;
    read(c, "b1", o.b1), read(c, "b2", o.b2), read(c, "eps", o.eps);
    return adam(rate, o);
  }
  if (name.starts_with("sgd")) {
    SgdOptions o;
    read(c, "momentum", o.momentum);
    return sgd(rate, o);
  }
  if (name.starts_with("lion")) {
    LionOptions o;
    read(c, "b1", o.b1), read(c, "b2", o.b2), read(c, "weight_decay", o.weight_decay);
    return lion(rate, o);
  }
  throw Bug("the fixture has an optimizer this test does not know: " + name);
}

void run_case(const std::string& name, const Json& c, OptimizerPtr optimizer) {
  Problem problem;
  HostArrays gradients = problem.gradients(0);
  optimizer->init(problem.slots(gradients));
  const HostArrays golden = read_safetensors(fixture_root() / "optim" / (name + ".safetensors"));
  const int64_t start = c.has("start_step") ? c["start_step"].as_int() : 0;
  const size_t updates = problem.learning_rates.size();
  for (size_t t = 0; t < updates; ++t) {
    gradients = problem.gradients(t);
    if (c.has("nan_grad")) insert_nans(c["nan_grad"], t, gradients);
    optimizer->update({.step = start + static_cast<int64_t>(t),
                       .learning_rate = static_cast<float>(problem.learning_rates[t]),
                       .gradient_norm = {}},
                      problem.slots(gradients));
    expect_params(problem, golden, t + 1);
    if (::testing::Test::HasFatalFailure()) return;
  }
  expect_state(*optimizer, golden, updates);
}

/// The same chain with a transformation that does nothing at its end, which no fused pass knows.
TransformationPtr unfused(const TransformationPtr& transformation) {
  return chain({transformation, scale(1.0)});
}

TEST(OptimizersGolden, AgreeWithT5xAndOptax) {
  if (!std::filesystem::exists(fixture_root() / "optim/cases.json"))
    GTEST_SKIP() << "no optim/cases.json under " << fixture_root();
  const Problem problem;
  const Schedule rate = [rates = problem.learning_rates](int64_t step) {
    return static_cast<float>(rates.at(static_cast<size_t>(step)));
  };
  int cases = 0;
  for (const auto& [name, c] : problem.cases["cases"].members()) {
    SCOPED_TRACE(name);
    if (c["optimizer"].as_string() == "adafactor")
      run_case(name, c,
               adafactor(adafactor_options(c["overrides"],
                                           problem.cases["adafactor_logical_factor_rules"])));
    else
      run_case(name, c, optax_optimizer(optax_case(name, c, rate)));
    ++cases;
  }
  EXPECT_GT(cases, 0);
}

/// Strips the "0/" that the outer chain of `unfused` puts before the state's names.
class Renamed final : public Optimizer {
 public:
  explicit Renamed(OptimizerPtr inner) : inner_(std::move(inner)) {}
  void init(std::span<const ParamSlot> params) override { inner_->init(params); }
  void update(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    inner_->update(args, params);
  }
  std::vector<StateArray> state() override {
    auto arrays = inner_->state();
    for (StateArray& array : arrays) array.name = array.name.substr(2);
    return arrays;
  }

 private:
  OptimizerPtr inner_;
};

TEST(OptimizersGolden, StagesRunOneByOneAgreeToo) {
  if (!std::filesystem::exists(fixture_root() / "optim/cases.json"))
    GTEST_SKIP() << "no optim/cases.json under " << fixture_root();
  const Problem problem;
  const Schedule rate = [rates = problem.learning_rates](int64_t step) {
    return static_cast<float>(rates.at(static_cast<size_t>(step)));
  };
  for (const auto& [name, c] : problem.cases["cases"].members()) {
    SCOPED_TRACE(name);
    if (c["optimizer"].as_string() != "adafactor")
      run_case(name, c,
               std::make_shared<Renamed>(optax_optimizer(unfused(optax_case(name, c, rate)))));
  }
}

TEST(OptimizersGolden, StandardRulesAreTheReferences) {
  if (!std::filesystem::exists(fixture_root() / "optim/cases.json"))
    GTEST_SKIP() << "no optim/cases.json under " << fixture_root();
  const Problem problem;
  FactorRules rules;
  for (const auto& [axis, dim] : problem.cases["adafactor_logical_factor_rules"].members())
    rules[axis] = factor_dim_from_name(dim.as_string());
  EXPECT_EQ(moe_logical_factor_rules(), rules);
}

}  // namespace
}  // namespace quintet
