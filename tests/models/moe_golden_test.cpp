// flaxformer's routers and MoE layers: who goes where exactly; weights, losses, metrics and gradients
// to rounding (fixtures model/moe_routers, model/moe_layers).

#include <array>
#include <fstream>

#include "models/moe.h"
#include "runtime/execution/tape.h"
#include "tests/harness/device.h"
#include "tests/harness/fixtures.h"

namespace quintet::testing {
namespace {

namespace fs = std::filesystem;

Router router_of(const std::string& kind) {
  if (kind == "masked") return Router::tokens_choose;
  return kind == "scatter" ? Router::scatter : Router::experts_choose;
}

void expect_near(const Tensor& got, const HostArray& want, const std::string& name,
                 Tolerance tolerance) {
  ASSERT_TRUE(got) << name;
  EXPECT_TRUE(near_array(got.to_host().as<float>(), want.as<float>(), tolerance)) << name;
}

void expect_scalar(const Tensor& got, const HostArray& want, const std::string& name) {
  const auto value = static_cast<double>(want.as<float>()[0]);
  EXPECT_NEAR(got.item(), value, 1e-5 * std::abs(value) + 1e-7) << name;
}

class Routers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(folder_ / "meta.json")) GTEST_SKIP() << "no router fixtures";
    meta_ = std::make_unique<Json>(Json::read(folder_ / "meta.json"));
    inputs_ = read_safetensors(folder_ / "inputs.safetensors");
    experts_ = size("num_experts"), capacity_ = size("expert_capacity");
  }
  int64_t size(const char* name) const { return (*meta_)[name].as_int(); }

  /// Routes with a tape; gradients of the recorded objective are taken.
  void route(const Json& c, Router kind) {
    x_ = Tensor::from_host(inputs_.at("token_inputs"), {axis::kBatch, axis::kLength, axis::kEmbed});
    w_ = Tensor::from_host(inputs_.at("router_kernel"), {axis::kEmbed, axis::kUnmodeled});
    x_.set_needs_grad(true), w_.set_needs_grad(true);
    const bool by_experts = kind == Router::experts_choose;
    Tape tape;
    {
      const Tape::Recording recording(tape);
      routed_ = ops::route(x_, w_, Tensor(),
                           {.router = kind,
                            .num_selected_experts = by_experts ? 1 : c["k"].as_int(),
                            .capacity = capacity_,
                            .group_size = size("tokens_per_group"),
                            .groups = size("num_groups"),
                            .batch_priority = !by_experts && c["bpr"].as_bool(),
                            .ignore_padding = c["pad"].as_bool()});
    }
    const HostArray gates = routed_.gates.to_host();
    HostArray dgates(DType::f32, gates.shape);
    k_ = gates.shape[2];
    const std::vector<std::string> names = {axis::kBatch, axis::kLength, "k"};
    each_choice([&](int64_t token, int64_t j, int64_t expert, int64_t position) {
      const auto at = static_cast<size_t>(token * k_ + j);
      if (kind == Router::scatter) {
        const HostArray& cotangent = inputs_.at("weights_cotangent");
        dgates.as<float>()[at] =
            cotangent.as<float>()[static_cast<size_t>(token * cotangent.shape[2] + j)];
      } else if (position >= 0 && position < capacity_) {
        dgates.as<float>()[at] =
            inputs_.at("combine_cotangent").as<float>()[place(token, expert, position)];
      }
    });
    tape.backward({routed_.gates, routed_.auxiliary_loss, routed_.z_loss},
                  {Tensor::from_host(dgates, names), Tensor::scalar(1), Tensor::scalar(0.1F)});
  }

  size_t place(int64_t token, int64_t expert, int64_t position) const {
    return static_cast<size_t>((token * experts_ + expert) * capacity_ + position);
  }
  template <typename Body>
  void each_choice(const Body& body) const {
    const HostArray experts = routed_.experts.to_host(), positions = routed_.positions.to_host();
    for (size_t i = 0; i < experts.as<int32_t>().size(); ++i)
      body(static_cast<int64_t>(i) / k_, static_cast<int64_t>(i) % k_, experts.as<int32_t>()[i],
           positions.as<int32_t>()[i]);
  }

  fs::path folder_ = fixture_root() / "model" / "moe_routers";
  std::unique_ptr<Json> meta_;
  HostArrays inputs_;
  int64_t experts_ = 0, capacity_ = 0, k_ = 0;
  Tensor x_, w_;
  ops::Routed routed_;
};

TEST_F(Routers, SendTokensWhereFlaxformerDoes) {
  for (const auto& [name, c] : (*meta_)["cases"].members()) {
    SCOPED_TRACE(name);
    const Router kind = router_of(c["kind"].as_string());
    const HostArrays want = read_safetensors(folder_ / (name + ".safetensors"));
    route(c, kind);
    const auto gates = routed_.gates.to_host();
    if (kind == Router::scatter) {
      const auto indices = want.at("dispatch_indices").as<int32_t>();
      each_choice([&](int64_t token, int64_t j, int64_t expert, int64_t position) {
        const auto at = static_cast<size_t>(2 * (token * k_ + j));
        EXPECT_EQ(expert, indices[at]) << "token " << token << ", choice " << j;
        EXPECT_EQ(position, indices[at + 1]) << "token " << token << ", choice " << j;
      });
      EXPECT_TRUE(near_array(gates.as<float>(), want.at("combine_weights").as<float>(), kT1));
    } else {
      const HostArray& mask = want.at("dispatch_mask");
      std::vector<uint8_t> dispatch(mask.bytes.size());
      std::vector<float> combine(mask.bytes.size());
      each_choice([&](int64_t token, int64_t j, int64_t expert, int64_t position) {
        if (position < 0 || position >= capacity_) return;
        dispatch[place(token, expert, position)] = 1;
        combine[place(token, expert, position)] =
            gates.as<float>()[static_cast<size_t>(token * k_ + j)];
      });
      EXPECT_TRUE(std::ranges::equal(dispatch, mask.as<uint8_t>()));
      EXPECT_TRUE(near_array(std::span<float>(combine), want.at("combine_array").as<float>(), kT1));
    }
    expect_scalar(routed_.auxiliary_loss, want.at("auxiliary_loss"), "auxiliary_loss");
    expect_scalar(routed_.z_loss, want.at("router_z_loss"), "router_z_loss");
    expect_near(w_.grad(), want.at("d_router_kernel"), "d_router_kernel", kT2);
    expect_near(x_.grad(), want.at("d_token_inputs"), "d_token_inputs", kT2);
  }
}

TEST_F(Routers, GroupsAndCapacitiesAreFlaxformers) {
  std::ifstream file(folder_ / "group_table.jsonl");
  int64_t rows = 0;
  for (std::string line; std::getline(file, line); ++rows) {
    const Json row = Json::parse(line, "group_table.jsonl");
    SCOPED_TRACE(line);
    const auto at = [&](const char* name) { return row[name].as_int(); };
    const auto groups = [&] {
      return num_groups(at("num_tokens"), at("max_group_size"), at("num_experts"),
                        at("expert_replicas"));
    };
    if (row.has("error")) {
      EXPECT_THROW(groups(), Error);
      continue;
    }
    EXPECT_EQ(groups(), at("num_groups"));
    EXPECT_EQ(at("num_tokens") / groups(), at("tokens_per_group"));
    EXPECT_EQ(expert_capacity(row["capacity_factor"].as_double(), at("tokens_per_group"),
                              at("num_experts"), at("min_expert_capacity")),
              at("expert_capacity"));
  }
  EXPECT_GT(rows, 0);
  for (const Json& row : (*meta_)["pad_table"].items()) {
    const auto at = [&](const char* name) { return row[name].as_int(); };
    const Groups got = padded(at("batch"), at("seq"), at("num_experts"), at("expert_replicas"));
    EXPECT_EQ((std::vector{got.padded_batch, got.padded_length}), row["padded"].as_ints());
  }
}

TEST(MoeLayers, ComputeWhatFlaxformersDo) {
  const fs::path folder = fixture_root() / "model" / "moe_layers";
  if (!fs::exists(folder / "meta.json")) GTEST_SKIP() << "no layer fixtures";
  const HostArrays inputs = read_safetensors(folder / "inputs.safetensors");
  const Json meta = Json::read(folder / "meta.json");
  for (const auto& [name, c] : meta["cases"].members()) {
    SCOPED_TRACE(name);
    HostArrays params, want;
    for (auto& [key, array] : read_safetensors(folder / (name + ".safetensors")))
      (key.starts_with("params/") ? params[key.substr(7)] : want[key]) = array;
    const bool gated = c["activations"].as_strings().size() == 2;
    LayerConfig config;
    config.emb_dim = inputs.at("inputs").shape[2];
    Parameters parameters;
    const MoeLayer layer(
        Scope(parameters), config,
        {.num_experts = c["num_experts"].as_int(),
         .max_group_size = c["max_group_size"].as_int(),
         .train_capacity_factor = 0,  // not used
         .eval_capacity_factor = c["capacity_factor"].as_double(),
         .min_expert_capacity = c["min_expert_capacity"].as_int(),
         .mlp_dim = params.at(gated ? "expert/wi_0/kernel" : "expert/wi/kernel").shape[2],
         .activations = c["activations"].as_strings(),
         .router = {
             .kind = router_of(c["router"].as_string()),
             .num_selected_experts = std::max<int64_t>(c["num_selected_experts"].as_int(), 1),
             .batch_prioritized_routing = c["batch_prioritized_routing"].as_bool(),
             .ignore_padding_tokens = c["ignore_padding_tokens"].as_bool()}});
    parameters.load(params);
    const std::vector<std::string> axes = {axis::kBatch, axis::kLength, axis::kEmbed};
    Tensor x = Tensor::from_host(inputs.at("inputs"), axes);
    x.set_needs_grad(true);
    LayerRouting routing;
    Tape tape;
    Tensor y;
    {
      const Tape::Recording recording(tape);
      y = layer(x, {}, &routing);
    }
    tape.backward({y, routing.auxiliary_loss, routing.z_loss},
                  {Tensor::from_host(inputs.at("output_cotangent"), axes), Tensor::scalar(1),
                   Tensor::scalar(0.1F)});
    expect_near(y, want.at("output"), "output", kT1);
    expect_near(x.grad(), want.at("d_inputs"), "d_inputs", kT2);
    for (const ParamInfo& info : parameters.all())
      expect_near(info.value.grad(), want.at("grads/" + info.name), info.name, kT2);
    expect_scalar(routing.auxiliary_loss, want.at("metrics/auxiliary_loss"), "auxiliary_loss");
    expect_scalar(routing.z_loss, want.at("metrics/router_z_loss"), "router_z_loss");
    const RoutingMetrics got = routing_metrics(std::array{routing.counts.to_host()});
    for (const auto& [metric, value] :
         {std::pair<std::string, double>{"fraction_tokens_left_behind",
                                         got.fraction_tokens_left_behind},
          {"expert_usage", got.expert_usage},
          {"router_confidence", got.router_confidence}})
      EXPECT_NEAR(value, static_cast<double>(want.at("metrics/" + metric).as<float>()[0]), 1e-6)
          << metric;
  }
}

}  // namespace
}  // namespace quintet::testing
