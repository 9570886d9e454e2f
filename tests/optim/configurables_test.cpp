// Optimizers and schedules as gin files name them.

#include <gtest/gtest.h>

#include "runtime/configurables/optimizer_configurables.h"
#include "runtime/configurables/shape_expression.h"
#include "runtime/gin/config.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/optax/optax.h"

namespace quintet {
namespace {

class OptimConfigurables : public ::testing::Test {
 protected:
  OptimConfigurables() { register_optim(registry_); }

  /// The value of a macro after parsing `text`.
  template <typename T>
  T evaluate(const std::string& text, const std::string& name = "VALUE") {
    const gin::Config::Options options;
    config_ = std::make_unique<gin::Config>(registry_, options);
    config_->parse_text(text, "test.gin");
    config_->finalize();
    return gin::as<T>(config_->evaluate(name), {"VALUE"});
  }

  /// Names of the state after init on two parameters, one of them large enough to factor.
  static std::vector<std::string> state_names(const OptimizerPtr& optimizer) {
    static std::vector<float> kernel(200 * 300, 0.5f), scale(8, 1.0f);
    const std::vector<int64_t> kernel_shape{200, 300}, scale_shape{8};
    optimizer->init(std::vector<ParamSlot>{
        {"mlp/kernel", {{"embed", 200}, {"mlp", 300}}, View::of(kernel.data(), kernel_shape)},
        {"norm/scale", {{"embed", 8}}, View::of(scale.data(), scale_shape)}});
    std::vector<std::string> names;
    for (const StateArray& array : optimizer->state()) names.push_back(array.name);
    return names;
  }

  gin::Registry registry_;
  std::unique_ptr<gin::Config> config_;
};
using Names = std::vector<std::string>;

TEST_F(OptimConfigurables, AdafactorAsT5xsBaseConfigurationHasIt) {
  const auto optimizer = evaluate<OptimizerPtr>(R"(
from __gin__ import dynamic_registration
from t5x import adafactor
VALUE = @adafactor.Adafactor()
adafactor.Adafactor:
  decay_rate = 0.8
  step_offset = 0
  logical_factor_rules = @adafactor.standard_logical_factor_rules()
)");
  EXPECT_EQ(state_names(optimizer),
            (Names{"mlp/kernel/v_row", "mlp/kernel/v_col", "norm/scale/v"}));
}

TEST_F(OptimConfigurables, AdafactorTakesEveryHyperParameter) {
  const auto optimizer = evaluate<OptimizerPtr>(R"(
VALUE = @adafactor.Adafactor()
adafactor.Adafactor:
  factored = True
  beta1 = 0.9
  multiply_by_parameter_scale = @adafactor.HParamMap()
  clipping_threshold = None
  weight_decay_rate = 0.001
  min_dim_size_to_factor = 4
  epsilon1 = 1e-20
  epsilon2 = 0.01
  dtype_momentum = 'float32'
  logical_factor_rules = {'embed': 'row', 'mlp': 'COL'}
  weight_decay_rate_lr_exponent = 2
  global_norm_clip_threshold = 1
  max_parameter_scale = 0.5
  skip_nan_updates = True
adafactor.HParamMap.rules = (('.*norm.*', False), ('.*', True))
)");
  EXPECT_EQ(state_names(optimizer), (Names{"mlp/kernel/v_row", "mlp/kernel/v_col", "mlp/kernel/m",
                                           "norm/scale/v", "norm/scale/m"}));
}

TEST_F(OptimConfigurables, AdafactorFactorsBySizeWhereItsRuleSaysSo) {
  const std::string text = R"(
VALUE = @adafactor.Adafactor()
adafactor.Adafactor.factor_map = @adafactor.HParamMap()
adafactor.Adafactor.min_dim_size_to_factor = %SIZE
adafactor.HParamMap.rules = (('.*norm.*', ('NONE',)), ('.*', %adafactor.HEURISTIC_RULE))
SIZE = )";
  EXPECT_EQ(state_names(evaluate<OptimizerPtr>(text + "128")),
            (Names{"mlp/kernel/v_row", "mlp/kernel/v_col", "norm/scale/v"}));
  EXPECT_EQ(state_names(evaluate<OptimizerPtr>(text + "1000")),
            (Names{"mlp/kernel/v", "norm/scale/v"}));
}

TEST_F(OptimConfigurables, ChainOfOptaxTransformations) {
  const auto optimizer = evaluate<OptimizerPtr>(R"(
from __gin__ import dynamic_registration
import optax
from t5x import optimizers
VALUE = @optimizers.chain()
optimizers.chain.transformations = [@optax.clip_by_global_norm(), @optax.adamw()]
optax.clip_by_global_norm.max_norm = 1.0
optax.adamw:
  learning_rate = @optax.warmup_cosine_decay_schedule()
  weight_decay = 0.01
optax.warmup_cosine_decay_schedule:
  init_value = 0.0
  peak_value = 1e-4
  warmup_steps = 1000
  decay_steps = %STEPS
  end_value = 0.0
STEPS = 20000
)");
  EXPECT_EQ(state_names(optimizer), (Names{"1/0/count", "1/0/mu/mlp/kernel", "1/0/mu/norm/scale",
                                           "1/0/nu/mlp/kernel", "1/0/nu/norm/scale", "1/2/count"}));
}

TEST_F(OptimConfigurables, WrappedOptaxOptimizers) {
  EXPECT_EQ(state_names(evaluate<OptimizerPtr>(
                "VALUE = @optimizers.adamw()\noptimizers.adamw.learning_rate = 1e-3\n")),
            (Names{"0/count", "0/mu/mlp/kernel", "0/mu/norm/scale", "0/nu/mlp/kernel",
                   "0/nu/norm/scale"}));
  EXPECT_EQ(state_names(evaluate<OptimizerPtr>(
                "VALUE = @optimizers.sgd()\n"
                "optimizers.sgd.learning_rate = @utils.create_learning_rate_scheduler()\n"
                "optimizers.sgd.momentum = 0.9\n")),
            (Names{"0/trace/mlp/kernel", "0/trace/norm/scale", "1/count"}));
  EXPECT_EQ(state_names(evaluate<OptimizerPtr>(
                "VALUE = @optimizers.lion()\noptimizers.lion.learning_rate = 1\n")),
            (Names{"0/count", "0/mu/mlp/kernel", "0/mu/norm/scale"}));
}

TEST_F(OptimConfigurables, MultiOptimizerByExpression) {
  EXPECT_EQ(state_names(evaluate<OptimizerPtr>(R"(
VALUE = @optimizers.MultiOptimizer()
optimizers.MultiOptimizer.traversals_and_optimizers = [
    (@a/traverse_util.ModelParamTraversal(), @adafactor.Adafactor()),
    (@b/traverse_util.ModelParamTraversal(), @optimizers.sgd())]
a/traverse_util.ModelParamTraversal.filter_fn = '^/mlp/'
b/traverse_util.ModelParamTraversal.filter_fn = '^/norm/'
optimizers.sgd.learning_rate = 0.1
optimizers.sgd.momentum = 0.5
)")),
            (Names{"mlp/kernel/v_row", "mlp/kernel/v_col", "1/0/trace/norm/scale"}));
}

TEST_F(OptimConfigurables, Schedules) {
  const auto schedule = evaluate<Schedule>(R"(
VALUE = @utils.create_learning_rate_scheduler()
utils.create_learning_rate_scheduler:
  factors = 'constant * rsqrt_decay'
  base_learning_rate = 1.0
  warmup_steps = 10000
)");
  EXPECT_EQ(schedule(0), 0.01f);
  EXPECT_EQ(schedule(40000), 0.005f);
  EXPECT_EQ(evaluate<Schedule>("VALUE = @optax.constant_schedule()\n"
                               "optax.constant_schedule.value = 0.5\n")(3),
            0.5f);
}

TEST_F(OptimConfigurables, WhatMatchesNothingNamesItsLine) {
  const auto message = [&](const std::string& text) -> std::string {
    try {
      state_names(evaluate<OptimizerPtr>("VALUE = @optimizers.chain()\n" + text));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage);
      return e.what();
    }
    return "no error";
  };
  const auto expect = [&](const std::string& text, const std::string& part) {
    EXPECT_NE(message(text).find(part), std::string::npos) << message(text);
  };
  expect(
      "optimizers.chain.transformations = [@optax.adamw()]\noptax.adamw.learning_rate = 0.1\n"
      "optax.adamw.mask = 'kernl'\n",
      "test.gin:4: optax.adamw.mask: the mask selects none of the 2 parameters");
  const std::string labelled =
      "optimizers.chain.transformations = [@optax.multi_transform()]\n"
      "optax.multi_transform.transforms = {'a': @optax.identity(), 'b': @optax.set_to_zero()}\n";
  expect(labelled + "optax.multi_transform.param_labels = {'kernel': 'a', 'bias': 'b'}\n",
         "test.gin:4: optax.multi_transform.param_labels: no expression is found in the path "
         "/norm/scale");
  expect(labelled + "optax.multi_transform.param_labels = {'kernel': 'a', 'bias': 'b', '': 'b'}\n",
         "test.gin:4: optax.multi_transform.param_labels: 'bias' is found in none");
  expect(labelled + "optax.multi_transform.param_labels = {'kernel': 'c', '': 'b'}\n",
         "'kernel' gives the label 'c', for which transforms has no transformation");
  expect(labelled + "optax.multi_transform.param_labels = {'': 'b'}\n",
         "param_labels: label 'a': the mask selects none");
  try {
    state_names(
        evaluate<OptimizerPtr>("VALUE = @optimizers.MultiOptimizer()\n"
                               "optimizers.MultiOptimizer.traversals_and_optimizers = [\n"
                               "  (@traverse_util.ModelParamTraversal(), @adafactor.Adafactor())]\n"
                               "traverse_util.ModelParamTraversal.filter_fn = 'encodr'\n"));
    FAIL() << "a group without parameters is no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(
                  "test.gin:4: flax.traverse_util.ModelParamTraversal.filter_fn: MultiOptimizer"),
              std::string::npos)
        << e.what();
  }
}

TEST_F(OptimConfigurables, InjectedNumbersAreThoseOfTheState) {
  const auto optimizer = evaluate<OptimizerPtr>(R"(
VALUE = @optimizers.OptaxWrapper()
optimizers.OptaxWrapper.optax_optimizer = @optax.inject_hyperparams()
optax.inject_hyperparams.inner_factory = @optax.sgd
optax.sgd.learning_rate = 0.5
)");
  config_.reset();  // a run's optimizer does without
  const std::vector<int64_t> shape{2};
  std::vector<float> param{1, 2}, gradient{1, 1};
  const std::vector<ParamSlot> slots{
      {"w", {{"embed", 2}}, View::of(param.data(), shape), View::of(gradient.data(), shape)}};
  optimizer->init(slots);
  for (const StateArray& array : optimizer->state())
    if (array.name == "hyperparams/learning_rate") *array.view.data<float>() = 0.25F;
  optimizer->update({}, slots);
  EXPECT_EQ(param, (std::vector<float>{0.75F, 1.75F}));
}

TEST(ShapeExpression, IsPythons) {
  const std::vector<int64_t> shape{4, 6, 10};
  const auto number = [&](const char* text) {
    return std::get<double>(evaluate_shape_expression(text, shape, "test.gin:1"));
  };
  const auto tuple = [&](const char* text) {
    return std::get<std::vector<int64_t>>(evaluate_shape_expression(text, shape, "test.gin:1"));
  };
  using Tuple = std::vector<int64_t>;
  EXPECT_EQ(number("1 + 2 * 3 - 4 / 8"), 6.5);
  EXPECT_EQ(number("-2 ** 2"), -4);
  EXPECT_EQ(number("2 ** -1 * (3 + 1)"), 2);
  EXPECT_EQ(number("-7 // 2 + -7 % 4"), -3);
  EXPECT_EQ(number("SHAPE[-1] * 1e-1"), 1);
  EXPECT_EQ(number("sqrt(prod(SHAPE[:-1]) + pow(1, 3))"), 5);
  EXPECT_EQ(number("max(SHAPE) + sum(SHAPE[1:]) + abs(-1)"), 27);
  EXPECT_EQ(tuple("()"), Tuple{});
  EXPECT_EQ(tuple("(3,)"), Tuple{3});
  EXPECT_EQ(tuple("(1, SHAPE[1], 1)"), (Tuple{1, 6, 1}));
  EXPECT_EQ(tuple("SHAPE[:1] + (1,) * 2"), (Tuple{4, 1, 1}));
  EXPECT_EQ(tuple("SHAPE[::2]"), (Tuple{4, 10}));
  EXPECT_EQ(tuple("SHAPE[-9:9]"), shape);
  for (const char* wrong :
       {"",         "1 +",          "SHAPE[3]",  "SHAPE[-4]",     "SHAPE[0.5]", "nothing(1)",
        "(1, 0.5)", "SHAPE + 1",    "1 2",       "sqrt SHAPE",    "max(())",    "1 / 0",
        "1 // 0",   "1 % 0",        "sqrt(-1)",  "2 ** 5000",     "mean(())",   "SHAPE[1e300]",
        "(1e300,)", "(1,) * 1e300", "(1,) * 65", "SHAPE[1:9e99]", "SHAPE[",     "(",
        ".",        "SHAPE[::0]"})
    EXPECT_THROW(evaluate_shape_expression(wrong, shape, "test.gin:1"), Error) << wrong;
  for (const std::string& deep : {std::string(100000, '(') + "1", std::string(100000, '-') + "1"})
    EXPECT_THROW(evaluate_shape_expression(deep, shape, "test.gin:1"), Error);
  EXPECT_THROW(evaluate_shape_expression(std::string("1\0 2", 4), shape, "test.gin:1"), Error);
}

TEST_F(OptimConfigurables, StatesOfAmosThatDoNotFitNameTheParameter) {
  const auto message = [&](const std::string& shape) -> std::string {
    try {
      state_names(evaluate<OptimizerPtr>(
          "VALUE = @optimizers.amos()\noptimizers.amos.learning_rate = 0.1\n"
          "optimizers.amos.eta_fn = @eta/amos_helper.params_fn_from_assign_map()\n"
          "eta/amos_helper.params_fn_from_assign_map.assign_map = {'.*': 1.0}\n"
          "optimizers.amos.shape_fn = @amos_helper.params_fn_from_assign_map()\n"
          "amos_helper.params_fn_from_assign_map.eval_str_value = True\n"
          "amos_helper.params_fn_from_assign_map.assign_map = {'norm': '()', 'mlp': " +
          shape + "}\n"));
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(message("(200, 1)"), "no error");
  EXPECT_NE(
      message("(100, 300)")
          .find("parameter mlp/kernel has the shape (200, 300), its states cannot have (100, 300)"),
      std::string::npos);
  EXPECT_NE(message("'SHAPE[1:]'").find("its states cannot have (300)"), std::string::npos);
  EXPECT_NE(message("1.0").find("a tuple is wanted, found a number"), std::string::npos);
  EXPECT_NE(message("'SHAPE[2]'").find("'SHAPE[2]' is not understood from character 8 on"),
            std::string::npos);
}

TEST_F(OptimConfigurables, WhatCannotBeIsRefusedByName) {
  const auto message = [&](const std::string& name, const std::string& more = "") -> std::string {
    try {
      evaluate<OptimizerPtr>("VALUE = @" + name + "()\n" + more);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  const auto expect = [](const std::string& got, const std::string& part) {
    EXPECT_NE(got.find(part), std::string::npos) << got;
  };
  const std::string dpsgd =
      "optax.contrib.dpsgd.learning_rate = 1.0\noptax.contrib.dpsgd.noise_multiplier = 1.0\n"
      "optax.contrib.dpsgd.seed = 0\noptax.contrib.dpsgd.l2_norm_clip = ";
  expect(message("optimizers.OptaxWrapper",
                 "optimizers.OptaxWrapper.optax_optimizer = @optax.contrib.dpsgd()\n" + dpsgd +
                     "0.0\n"),
         "l2_norm_clip must be positive, got 0");
  expect(
      message("optimizers.chain",
              "optimizers.chain.transformations = [@optax.identity(), @optax.contrib.dpsgd()]\n" +
                  dpsgd + "1.0\n"),
      "chain: a transformation: a transformation that clips the gradient of each example is the "
      "first");
  const std::string inject =
      "optimizers.OptaxWrapper.optax_optimizer = @optax.inject_hyperparams()\n"
      "optax.inject_hyperparams.inner_factory = ";
  expect(message("optimizers.OptaxWrapper", inject + "@optax.contrib.dpsgd\n" + dpsgd + "1.0\n"),
         "optax.inject_hyperparams.inner_factory: a transformation that clips");
  expect(message("optimizers.OptaxWrapper", inject + "@outer/optax.inject_hyperparams\n"
                                                     "outer/optax.inject_hyperparams.inner_factory "
                                                     "= @optax.sgd\noptax.sgd.learning_rate = 1\n"),
         "optax.inject_hyperparams of itself");
  expect(
      message("optimizers.OptaxWrapper", inject + "@optax.noisy_sgd\noptax.noisy_sgd.learning_rate "
                                                  "= 1\noptax.noisy_sgd.seed = 5000000000\n"),
      "5000000000 is no number of 32 bits");
  expect(message("optimizers.OptaxWrapper", inject + "@optax.sgd\n"),
         "Required bindings for `optax.sgd` not provided in config: learning_rate");
  expect(message("optimizers.OptaxWrapper", inject +
                                                "@optax.sgd\noptax.sgd.learning_rate = 1\n"
                                                "optax.inject_hyperparams.static_args = 'mask'\n"),
         "test.gin:5: optax.inject_hyperparams.static_args: optax.sgd has no parameter 'mask'");
  expect(message("optimizers.OptaxWrapper",
                 inject + "@optimizers.sgd\noptimizers.sgd.learning_rate = 1\n"),
         "optax.inject_hyperparams.inner_factory: expected Transformation");
  expect(message("optimizers.adamw",
                 "optimizers.adamw.learning_rate = 1\noptimizers.adamw.mu_dtype = 'float16'\n"),
         "test.gin:3: t5x.optimizers.adamw.mu_dtype: expected None, 'float32' or 'bfloat16'");
  expect(
      message("optimizers.yogi", "optimizers.yogi.learning_rate = 1\noptimizers.yogi.b1 = 1.0\n"),
      "b1 must be at least 0 and below 1, got 1");
  expect(message("optimizers.adagrad", "optimizers.adagrad.learning_rate = -1\n"),
         "test.gin:2: t5x.optimizers.adagrad.learning_rate: a learning rate must be 0 or more");
}

/// The message a configuration fails with.
TEST_F(OptimConfigurables, MistakesNameTheParameter) {
  const auto message = [&](const std::string& text) -> std::string {
    try {
      evaluate<OptimizerPtr>("VALUE = @adafactor.Adafactor()\n" + text);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage);
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message("adafactor.Adafactor.dtype_momentum = 'float16'").find("dtype_momentum"),
            std::string::npos);
  EXPECT_NE(message("adafactor.Adafactor.decay_rate = 'high'").find("decay_rate"),
            std::string::npos);
  EXPECT_NE(
      message("adafactor.Adafactor.logical_factor_rules = {'embed': 'diagonal'}").find("diagonal"),
      std::string::npos);
  EXPECT_NE(message("adafactor.Adafactor.multiply_by_parameter_scale = @adafactor.HParamMap()\n"
                    "adafactor.HParamMap.rules = [('(', True)]")
                .find("regular expression"),
            std::string::npos);
}

}  // namespace
}  // namespace quintet
