// Where ops run on a mesh and what is resharded for it: the planner's choices, the collectives and bytes of
// changes of layout, and what is refused. No rank talks to another here.

#include "runtime/plan/plan.h"

#include <gtest/gtest.h>

#include <functional>

#include "runtime/mesh/reshard_plan.h"
#include "runtime/plan/plan_cache.h"

namespace quintet {
namespace {

Sharding sharding(int64_t data, int64_t model, int activations, int parameters) {
  return {{{"data", data}, {"model", model}},
          {0, 0},
          standard_logical_axis_rules({.activation_partitioning_dims = activations,
                                       .parameter_partitioning_dims = parameters,
                                       .additional_rules = {}})};
}

const Axes kX{{"batch", 16}, {"length", 8}, {"embed", 32}},
    kH{{"batch", 16}, {"length", 8}, {"mlp", 64}};
const Axes kIn{{"embed", 32}, {"mlp", 64}}, kOut{{"mlp", 64}, {"embed", 32}};

struct Planned {
  Plan plan;
  Tensors inputs;
  std::vector<std::string> reshards;  // "1: all_gather over data", "result: all_reduce over model"
};

/// The plan of an op whose operands lie where the rules put them.
Planned plan(const Op& op, const std::vector<Axes>& operands, const Sharding& on, Attrs attrs = {},
             const OutputMask& mask = {}) {
  const Sharding::Use use(on);
  Planned planned;
  for (const Axes& axes : operands) {
    if (axes.empty()) {  // an operand that is left out
      planned.inputs.emplace_back();
      continue;
    }
    const Spec spec{axes, DType::f32};
    planned.inputs.push_back(Tensor(spec, on.place(spec), full_slice(spec)));
  }
  const auto shapes = quintet::bind(op.name, op.rule, planned.inputs, attrs);
  const OutputMask make = mask.empty() ? OutputMask(shapes.size(), true) : mask;
  planned.plan = plan_op(op, planned.inputs, shapes, attrs, make, on);
  const auto add = [&](const std::string& what, const Spec& spec, const Layout& from,
                       const Layout& to) {
    for (const ReshardStep& step : reshard_plan(spec, full_slice(spec), from, to, on.mesh()))
      planned.reshards.push_back(
          fmt::format("{}: {} over {}", what, name_of(step.kind), fmt::join(step.axes, "+")));
  };
  for (size_t i = 0; i < planned.inputs.size(); ++i)
    if (!planned.inputs[i].absent())
      add(std::to_string(i), planned.inputs[i].spec(), planned.inputs[i].layout(),
          planned.plan.inputs[i]);
  for (size_t i = 0; i < shapes.size(); ++i)
    add("result", shapes[i].spec, planned.plan.results[i], planned.plan.targets[i]);
  return planned;
}

using Texts = std::vector<std::string>;

std::string refusal(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    return e.what();
  }
  return "accepted";
}

TEST(Plan, ZeRO3GathersParametersAndScattersTheirGradients) {
  const Sharding on = sharding(4, 1, 1, 2);
  EXPECT_EQ(plan(ops::table::matmul, {kX, kIn}, on).reshards, (Texts{"1: all_gather over data"}));
  EXPECT_EQ(plan(ops::table::matmul_t, {kH, kIn}, on).reshards, (Texts{"1: all_gather over data"}));
  EXPECT_EQ(plan(ops::table::matmul_grad_w, {kX, kH}, on).reshards,
            (Texts{"result: reduce_scatter over data"}));
}

TEST(Plan, ActivationsStayHoweverFewTheyAre) {
  const Axes few{{"batch", 4}, {"length", 1}, {"embed", 32}};
  EXPECT_EQ(plan(ops::table::matmul, {few, kIn}, sharding(4, 1, 1, 2)).reshards,
            (Texts{"1: all_gather over data"}));
}

TEST(Plan, MegatronReducesOnceForwardAndOnceBackward) {
  const Sharding on = sharding(1, 4, 1, 1);
  EXPECT_EQ(plan(ops::table::mlp, {kX, kIn, kIn, kOut}, on).reshards,
            (Texts{"result: all_reduce over model"}));
  EXPECT_EQ(plan(ops::table::mlp_grad, {kX, kIn, kIn, kOut, kH, kH, kX}, on).reshards,
            (Texts{"result: all_reduce over model"}));
  EXPECT_EQ(plan(ops::table::matmul_grad_w, {kH, kX}, on).reshards, Texts{});
}

TEST(Plan, SequenceParallelismMovesActivationsAndNeverParameters) {
  const Sharding on({{"data", 2}, {"model", 4}}, {0, 0},
                    standard_logical_axis_rules({.sequence_parallel = true}));
  const Axes q{{"embed", 32}, {"joined_kv", 32}},
      heads{{"batch", 16}, {"length", 8}, {"joined_kv", 32}};
  EXPECT_EQ(plan(ops::table::matmul, {kX, q}, on).reshards, (Texts{"0: all_gather over model"}));
  EXPECT_EQ(plan(ops::table::matmul_grad_w, {kX, heads}, on).reshards,
            (Texts{"0: all_gather over model", "result: all_reduce over data"}));
  EXPECT_EQ(plan(ops::table::matmul_t, {heads, q}, on).reshards,
            (Texts{"result: reduce_scatter over model"}));
  // However many rows there are, and whether or not products are saved.
  const Axes many{{"batch", 16384}, {"length", 8}, {"embed", 32}};
  for (const bool saved : {false, true})
    EXPECT_EQ(plan(ops::table::mlp, {many, kIn, kIn, kOut}, on, {}, {true, saved, saved}).reshards,
              (Texts{"0: all_gather over model", "result: reduce_scatter over model"}));
  const Axes ids{{"batch", 16}, {"length", 8}}, table{{"vocab", 64}, {"embed", 32}};
  EXPECT_EQ(plan(ops::table::embed, {ids, table}, on).reshards,
            (Texts{"0: all_gather over model", "result: reduce_scatter over model"}));
  EXPECT_EQ(plan(ops::table::embed_grad, {ids, kX}, on, {{"v", int64_t{64}}}).reshards,
            (Texts{"0: all_gather over model", "1: all_gather over model",
                   "result: all_reduce over data"}));
}

TEST(Plan, ContextParallelismMovesNothingButKeysAndValues) {
  const Sharding on({{"data", 2}, {"model", 4}}, {0, 0},
                    standard_logical_axis_rules({.context_parallel = true}));
  const Axes q{{"embed", 32}, {"joined_kv", 32}}, bias{{"heads", 8}, {"relpos_buckets", 32}},
      heads{{"batch", 16}, {"length", 8}, {"joined_kv", 32}}, ids{{"batch", 16}, {"length", 8}};
  EXPECT_EQ(plan(ops::table::matmul, {kX, q}, on).reshards, Texts{});
  EXPECT_EQ(plan(ops::table::mlp, {kX, kIn, kIn, kOut}, on).reshards, Texts{});
  EXPECT_EQ(plan(ops::table::attention, {heads, heads, heads, bias, ids, ids, ids, {}}, on,
                 {{"h", int64_t{8}}})
                .reshards,
            (Texts{"1: all_gather over model", "2: all_gather over model",
                   "5: all_gather over model", "6: all_gather over model"}));
  EXPECT_NE(refusal([] {
              standard_logical_axis_rules({.sequence_parallel = true, .context_parallel = true});
            }).find("choose one"),
            std::string::npos);
}

// A packed row names its token by number: whoever packs has all tokens of its rows.
TEST(Plan, TokensArePackedFromWholeRows) {
  const Sharding on({{"data", 2}, {"model", 4}}, {0, 0},
                    standard_logical_axis_rules({.sequence_parallel = true}));
  const Axes rows{{"batch", 16}, {"length", 8}, {"choices", 2}},
      choices{{"batch", 16}, {"packed", 16}};
  EXPECT_EQ(
      plan(ops::table::dispatch, {kX, rows, choices, rows}, on).reshards,
      (Texts{"0: all_gather over model", "1: all_gather over model", "3: all_gather over model"}));
}

TEST(Plan, TwoDimensionsGatherActivationsBeforeAndScatterThemAfter) {
  const Sharding on = sharding(2, 2, 2, 2);
  const Texts gathers{"0: all_gather over model", "1: all_gather over data",
                      "2: all_gather over data", "3: all_gather over data"};
  Texts forward = gathers, backward = gathers;
  forward.push_back("result: reduce_scatter over model");
  EXPECT_EQ(plan(ops::table::mlp, {kX, kIn, kIn, kOut}, on).reshards, forward);
  backward.insert(backward.end(),
                  {"6: all_gather over model", "result: reduce_scatter over model",
                   "result: reduce_scatter over data", "result: reduce_scatter over data"});
  EXPECT_EQ(plan(ops::table::mlp_grad, {kX, kIn, kIn, kOut, kH, kH, kX}, on).reshards, backward);
}

// Axes marked `=` are sharded as they come: rows that lie with their experts bring no expert's matrices to
// them, rows that do not are never dealt out by place.
TEST(Plan, PackedRowsStayWhereTheyAre) {
  LogicalAxisRules rules{
      {"packed", {"data"}}, {"arrived", {"expert"}}, {"own_experts", {"expert"}}};
  const LogicalAxisRules moe =
      moe_logical_axis_rules({.parameter_partitioning_dims = 2, .additional_rules = {}});
  rules.insert(rules.end(), moe.begin(), moe.end());
  const Sharding on({{"data", 2}, {"expert", 2}, {"model", 2}}, {0, 0, 0}, rules);
  const Axes w{{"expert", 4}, {"embed", 32}, {"expert_mlp", 64}};
  const Axes offsets{{"packed", 2}, {"own_experts", 6}}, all_offsets{{"packed", 2}, {"s", 5}};
  const auto rows = [](const std::string& axis, const Axis& last) {
    return Axes{{"packed", 2}, {axis, 48}, last};
  };
  const Attrs experts{{"x", int64_t{4}}};
  EXPECT_EQ(
      plan(ops::table::grouped_matmul, {rows("arrived", w[1]), offsets, w}, on, experts).reshards,
      (Texts{"2: all_gather over data"}));
  EXPECT_EQ(plan(ops::table::grouped_matmul_grad_w,
                 {rows("arrived", w[1]), offsets, rows("arrived", w[2])}, on, experts)
                .reshards,
            (Texts{"result: reduce_scatter over data"}));
  EXPECT_EQ(
      plan(ops::table::grouped_matmul, {rows("n", w[1]), all_offsets, w}, on, experts).reshards,
      (Texts{"2: all_gather over expert", "2: all_gather over data"}));
  EXPECT_THROW(
      plan(ops::table::grouped_matmul, {rows("arrived", w[1]), all_offsets, w}, on, experts), Bug);
}

TEST(Plan, EmbeddingIsParallelInTheVocabulary) {
  const Axes ids{{"batch", 16}, {"length", 8}}, table{{"vocab", 64}, {"embed", 32}};
  EXPECT_EQ(plan(ops::table::embed, {ids, table}, sharding(1, 4, 1, 1)).reshards,
            (Texts{"result: all_reduce over model"}));
  EXPECT_EQ(plan(ops::table::embed, {ids, table}, sharding(1, 4, 2, 1)).reshards,
            (Texts{"result: reduce_scatter over model"}));
}

TEST(Plan, AttentionIsCutByHeads) {
  const Axes q{{"batch", 16}, {"length", 8}, {"joined_kv", 32}};
  const Axes bias{{"heads", 8}, {"relpos_buckets", 32}};
  const Axes segments{{"batch", 16}, {"length", 8}};
  const auto on_model = [&](int64_t heads) {
    Axes table = bias;
    table[0].size = heads;
    const Sharding on = sharding(1, 4, 1, 1);
    return plan(ops::table::attention, {q, q, q, table, segments, segments, segments, {}}, on,
                {{"h", heads}});
  };
  EXPECT_EQ(on_model(8).reshards, Texts{});
  EXPECT_EQ(to_string(on_model(8).plan), "model on h");
}

TEST(Plan, IsRememberedForTheAttributesThatItReads) {
  // Of packed rows nothing but the attribute says how many groups there are to shard.
  const Op op("group", "x: (gn)e -> y: (gn)e with g", "", nullptr, 0, no_products, nullptr,
              nullptr);
  const Sharding on({{"model", 4}}, {0}, {{"rows", {"model"}}});
  const Spec spec{{{"rows", 24}, {"embed", 8}}, DType::f32};
  const Sharding::Use use(on);
  const Tensor x(spec, on.place(spec), full_slice(spec));
  const auto works_on = [&](int64_t groups) {
    const Attrs attrs{{"g", groups}};
    const auto shapes = quintet::bind(op.name, op.rule, {x}, attrs);
    return to_string(planned(op, {x}, shapes, attrs, {true}, on));
  };
  EXPECT_EQ(works_on(8), "model on g");
  EXPECT_EQ(works_on(6), "");  // which 4 does not divide
  EXPECT_EQ(works_on(8), "model on g");
}

TEST(Plan, SeesNoAttributeThatItsRuleDoesNotName) {
  EXPECT_FALSE(select_sizes(ops::table::attention.rule, {{"h", int64_t{4}}, {"causal", true}})
                   .has("causal"));
}

TEST(Plan, StatisticsOfACutAxisAreTakenInPhases) {
  const Axes scale{{"embed", 32}}, projection{{"embed", 32}, {"vocab", 64}};
  const Axes tokens{{"batch", 16}, {"length", 8}};
  EXPECT_TRUE(plan(ops::table::rms_norm, {kX, scale}, sharding(2, 2, 2, 1)).plan.in_phases);
  EXPECT_FALSE(plan(ops::table::rms_norm, {kX, scale}, sharding(2, 2, 1, 1)).plan.in_phases);
  EXPECT_TRUE(plan(ops::table::add_rms_norm, {kX, kX, scale}, sharding(2, 2, 2, 1)).plan.in_phases);
  EXPECT_FALSE(
      plan(ops::table::add_rms_norm, {kX, kX, scale}, sharding(2, 2, 1, 1)).plan.in_phases);
  EXPECT_TRUE(
      plan(ops::table::cross_entropy, {kX, projection, tokens, tokens}, sharding(2, 2, 1, 1))
          .plan.in_phases);
}

TEST(Plan, SequenceParallelNormsAreARuleTable) {
  // Beyond T5X: outside of matrix products the length is sharded over `model`.
  const Sharding on({{"data", 1}, {"model", 4}}, {0, 0},
                    {{"batch", {"data"}},
                     {"vocab", {"model"}},
                     {"mlp", {"model"}},
                     {"joined_kv", {"model"}},
                     {"heads", {"model"}},
                     {"length", {"model"}}});
  const Axes scale{{"embed", 32}};
  EXPECT_EQ(plan(ops::table::rms_norm, {kX, scale}, on).reshards, Texts{});
  EXPECT_EQ(to_string(plan(ops::table::rms_norm, {kX, scale}, on).plan), "model on 1");
  EXPECT_EQ(plan(ops::table::add_rms_norm, {kX, kX, scale}, on).reshards, Texts{});
  EXPECT_EQ(plan(ops::table::matmul, {kH, kOut}, on).reshards,
            (Texts{"result: reduce_scatter over model"}));
}

TEST(Moves, CountTheBytesThatARankSends) {
  const Spec spec{{{"embed", 32}, {"mlp", 64}}, DType::f32};  // 8,192 bytes
  const Axes mesh{{"data", 4}, {"model", 2}};
  const auto bytes = [&](const Layout& from, const Layout& to) {
    return bytes_of(reshard_plan(spec, full_slice(spec), from, to, mesh));
  };
  const Layout all = Layout::replicated(2), rows{{{"data"}, {}}, {}}, columns{{{}, {"data"}}, {}};
  const Layout open{{{}, {}}, {"data"}};
  EXPECT_EQ(bytes(rows, all), 3 * 2048);
  EXPECT_EQ(bytes(all, rows), 0);
  EXPECT_EQ(bytes(rows, columns), 3 * 512);
  EXPECT_EQ(bytes(open, rows), 3 * 2048);
  EXPECT_EQ(bytes(open, all), 2 * 3 * 2048);
  // Summed first, so that less has to be gathered.
  EXPECT_EQ(bytes({{{"model"}, {}}, {"data"}}, {{{"model"}, {"data"}}, {}}), 3 * 1024);
}

// Axis "host" leads from host to host, where a byte costs as much as eight on "gpu".
TEST(Moves, CrossTheNetworkWhenThereIsLeast) {
  const Spec spec{{{"embed", 32}, {"mlp", 64}}, DType::f32};  // 8,192 bytes
  const Axes mesh{{"gpu", 2}, {"host", 4}};
  const auto moves = [&](const Layout& from, const Layout& to, const LinkCosts& links) {
    Texts texts;
    for (const ReshardStep& step : reshard_plan(spec, full_slice(spec), from, to, mesh, links))
      texts.push_back(fmt::format("{} {}", fmt::join(step.axes, "+"), step.bytes));
    return texts;
  };
  const LinkCosts links{{"host"}, 8};
  const Layout all = Layout::replicated(2), open{{{}, {}}, {"gpu", "host"}};
  const Layout gpu_first{{{"gpu"}, {"host"}}, {}}, host_first{{{"host"}, {"gpu"}}, {}};
  // Gathers: over the network first. Scatters: last.
  EXPECT_EQ(moves(gpu_first, all, {}), (Texts{"gpu 1024", "host 6144"}));
  for (const Layout& sharded : {gpu_first, host_first}) {
    EXPECT_EQ(moves(sharded, all, links), (Texts{"host 3072", "gpu 4096"}));
    EXPECT_EQ(moves(open, sharded, links), (Texts{"gpu 4096", "host 3072"}));
  }
  EXPECT_EQ(cost_of(reshard_plan(spec, full_slice(spec), gpu_first, all, mesh, links), links),
            8 * 3072 + 4096);
}

TEST(Plan, CountsAByteBetweenHostsForEight) {
  const auto cost = [](const LinkCosts& links) {
    const Sharding on({{"data", 4}, {"model", 4}}, {0, 0},
                      standard_logical_axis_rules({.parameter_partitioning_dims = 2}), nullptr,
                      links);
    return plan(ops::table::mlp, {kX, kIn, kIn, kOut}, on).plan.cost;
  };
  // Three matrices are gathered over `data`, a sum is taken over `model`.
  const double gathers = 3 * 32 * 64 / 4 * 4 * 3 / 4, sum = 2 * 16 * 8 * 32 / 4 * 4 * 3 / 4;
  EXPECT_EQ(cost({}), gathers + sum);
  EXPECT_EQ(cost({{"data"}, 8}), 8 * gathers + sum);
  EXPECT_EQ(cost({{"model"}, 8}), gathers + 8 * sum);
}

TEST(Moves, LeadFromAnyLayoutToAnyOther) {
  const Spec spec{{{"a", 16}, {"b", 16}}, DType::f32};
  const Axes mesh{{"x", 2}, {"y", 2}};
  std::vector<Layout> layouts;
  const std::vector<MeshAxes> shardings{{}, {"x"}, {"y"}, {"x", "y"}, {"y", "x"}};
  for (const MeshAxes& a : shardings)
    for (const MeshAxes& b : shardings) {
      const bool twice = std::any_of(a.begin(), a.end(), [&](const std::string& axis) {
        return std::find(b.begin(), b.end(), axis) != b.end();
      });
      if (!twice) layouts.push_back({{a, b}, {}});
    }
  for (const Layout& from : layouts)
    for (const Layout& to : layouts) {
      const auto steps = reshard_plan(spec, full_slice(spec), from, to, mesh);
      EXPECT_EQ(steps.empty() ? from : steps.back().after, to);
      EXPECT_LE(steps.size(), 5u);
    }
}

TEST(Rules, ThatNameNoMeshAxisAreRefused) {
  EXPECT_EQ(refusal([] {
              Sharding({{"data", 2}}, {0}, {{"mlp", {"tensor"}}});
            }),
            "logical axis rule ('mlp', 'tensor'): the mesh [data=2] has no axis 'tensor'; "
            "correct PjitPartitioner.logical_axis_rules");
}

TEST(Rules, ThatCutWhatDoesNotDivideAreRefusedNamingOpTensorAndSizes) {
  const Sharding on = sharding(1, 4, 1, 1);
  const Axes narrow{{"embed", 32}, {"mlp", 6}};
  EXPECT_EQ(refusal([&] {
              plan(ops::table::matmul, {kX, {{"embed", 32}, {"wide", 6}}}, on);
            }),
            "accepted");
  const Spec spec{narrow, DType::f32};
  EXPECT_EQ(
      refusal([&] { on.block("parameter wi", spec, on.place(spec), full_slice(spec)); }),
      "parameter wi [embed=32, mlp=6] float32: axis 'mlp' of size 6 cannot be sharded over mesh "
      "axis 'model' of size 4, as the rule ('mlp', 'model') says; choose a size that it "
      "divides, another mesh, or a rule that leaves 'mlp' unsharded");
  const std::string of_result = refusal([&] {
    const Sharding::Use use(on);
    const Tensor x(Spec{kX, DType::f32}), w(spec);
    plan_op(ops::table::matmul, {x, w},
            quintet::bind("matmul", ops::table::matmul.rule, {x, w}, {}), {}, {true}, on);
  });
  EXPECT_TRUE(
      of_result.starts_with("matmul: result [batch=16, length=8, mlp=6] float32: axis 'mlp' "
                            "of size 6 cannot be sharded over mesh axis 'model' of size 4"))
      << of_result;
}

}  // namespace
}  // namespace quintet
