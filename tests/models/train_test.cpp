// A hundred steps of training follow T5X's own, to the noise that float32 brings (fixtures train/).

#include "tests/models/train_fixture.h"

namespace quintet::testing {
namespace {

/// Batch number `index` of arrays stacked over batches.
HostArrays batch_at(const HostArrays& stacked, int64_t index) {
  HostArrays batch;
  for (const auto& [name, array] : stacked) {
    HostArray& one = batch[name] = HostArray(array.dtype, {array.shape[1], array.shape[2]});
    const int64_t at = index % array.shape[0] * static_cast<int64_t>(one.bytes.size());
    std::copy_n(array.bytes.begin() + at, one.bytes.size(), one.bytes.begin());
  }
  return batch;
}

/// Of (after - before) / before.
double rms_of_ratio(const std::vector<float>& before, const std::vector<float>& after) {
  double sum = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const double ratio = static_cast<double>((after[i] - before[i]) / before[i]);
    sum += ratio * ratio;
  }
  return std::sqrt(sum / static_cast<double>(before.size()));
}

std::string other_factor(const std::string& name) {
  return name.substr(0, name.rfind('/')) + (name.ends_with("row") ? "/v_col" : "/v_row");
}

class TrainFixture : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    meta_ = std::make_unique<Json>(Json::read(GetParam() / "meta.json"));
    if (!supported((*meta_)["config"])) GTEST_SKIP() << "network of a later version";
    metrics_ = read_safetensors(GetParam() / "metrics.safetensors");
    noise_ = read_safetensors(GetParam() / "noise.safetensors");
    checkpoints_ = read_safetensors(GetParam() / "checkpoints.safetensors");
    model_ = build_model((*meta_)["config"], read_loss((*meta_)["loss"]));
    load_joined(model_->parameters(),
                layers_apart(read_safetensors(GetParam() / (*meta_)["initial_params"].as_string()),
                             (*meta_)["config"]));
    const Schedule schedule = read_schedule((*meta_)["learning_rate"]);
    const Json parts = (*meta_)["num_microbatches"];
    trainer_ = std::make_unique<Trainer>(
        [this](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
          return model_->loss_fn(batch, {begin, end},
                                 {.train = true, .dropout_key = key, .t5x_dropout = has_dropout()});
        },
        model_->parameters(), read_optimizer((*meta_)["optimizer"], schedule),
        TrainerOptions{.num_microbatches = parts.is_null() ? 1 : parts.as_int(),
                       .t5x_dropout = has_dropout(),
                       .learning_rate = schedule,
                       .scaled_gradients = ".*expert.*",
                       .gradient_scale = expert_partitions(),
                       .weight_metrics = true},
        key_from_seed(0));
  }

  /// T5X keeps one array of all layers: their metrics are one, and so is what its optimizer keeps.
  bool is_stacked() const { return is_scanned((*meta_)["config"]); }
  bool has_dropout() const { return (*meta_)["dropout_rate"].as_double() > 0; }

  double expert_partitions() const {
    if (!meta_->has("num_expert_partitions") || (*meta_)["num_expert_partitions"].is_null())
      return 1;
    return (*meta_)["num_expert_partitions"].as_double();
  }

  void compare_metrics(int64_t step, const Metrics& got) {
    for (const auto& [name, want] : metrics_) {
      if (want.shape.size() != 1 || is_unsound((*meta_)["config"], name)) continue;
      ASSERT_TRUE(got.contains(name)) << name;
      const auto i = static_cast<size_t>(step);
      EXPECT_NEAR(got.at(name).value(), want.as<float>()[i],
                  noise_.at("atol/" + name).as<float>()[i])
          << name << " at step " << step;
    }
  }

  /// Metrics of every parameter, recorded at a few steps.
  void compare_weight_metrics(size_t row, const Metrics& got) {
    if (is_stacked()) return;
    const auto names = (*meta_)["param_names"].as_strings();
    for (const auto& [metric, want] : metrics_) {
      if (want.shape.size() != 2) continue;
      for (size_t i = 0; i < names.size(); ++i) {
        const size_t at = row * names.size() + i;
        EXPECT_NEAR(got.at(metric + "/" + names[i]).value(), want.as<float>()[at],
                    noise_.at("atol/" + metric).as<float>()[at])
            << metric << "/" << names[i];
      }
    }
  }

  std::map<std::string, std::vector<float>> parameters() const {
    std::map<std::string, std::vector<float>> values;
    for (const ParamInfo& info : model_->parameters().all()) {
      const HostArray array = info.value.to_host();
      values[info.name].assign(array.as<float>().begin(), array.as<float>().end());
    }
    return values;
  }

  void compare_update_ratios(const std::map<std::string, std::vector<float>>& before,
                             const Metrics& got) {
    for (const auto& [name, after] : parameters()) {
      const double want = rms_of_ratio(before.at(name), after);
      EXPECT_NEAR(got.at("weight_update_divided_by_weight_rms/" + name).value(), want, 1e-5 * want)
          << name;
    }
  }

  /// Of each array of checkpoints, as many as it has elements: those of stacks are their layers'.
  HostArrays tolerances() const {
    const Json recorded = (*meta_)["tolerance"]["checkpoints"];
    HostArrays all;
    for (const auto& [name, array] : checkpoints_) {
      HostArray& one = all[name] = HostArray(DType::f32, array.shape);
      std::ranges::fill(one.as<float>(), recorded.has(name)
                                             ? static_cast<float>(recorded[name].as_double())
                                             : 2e-6F);
    }
    return layers_apart(all, (*meta_)["config"]);
  }

  void compare_checkpoint(int64_t updates) {
    std::map<std::string, HostArray> state;
    for (const StateArray& array : trainer_->state()) state[array.name] = host_copy(array);
    const HostArrays allowed = tolerances();
    for (const auto& [kind, ours] : {std::pair<std::string, std::string>{"param", "target/"},
                                     {"state", "state/param_states/"}}) {
      const std::string prefix = fmt::format("{}/{}/", kind, updates);
      if (kind == "state" && is_stacked()) continue;
      for (const auto& [name, want] : layers_apart(checkpoints_, (*meta_)["config"])) {
        if (!name.starts_with(prefix)) continue;
        auto found = state.find(ours + name.substr(prefix.size()));
        ASSERT_NE(found, state.end()) << name;
        // Of a matrix of ours v_row is the smaller axis, of one with more axes in T5X embed.
        if (name.find("/v_") != std::string::npos && found->second.elements() != want.elements())
          found = state.find(ours + other_factor(name.substr(prefix.size())));
        const HostArray& got = found->second;
        if (got.dtype == DType::i32) {
          EXPECT_EQ(got.as<int32_t>()[0], want.as<int32_t>()[0]) << name;
          continue;
        }
        EXPECT_TRUE(
            near_array(got.as<float>(), want.as<float>(), {allowed.at(name).as<float>()[0], 0}))
            << name;
      }
    }
  }

  std::unique_ptr<Json> meta_;
  HostArrays metrics_, noise_, checkpoints_;
  std::unique_ptr<BaseModel> model_;
  std::unique_ptr<Trainer> trainer_;
};

TEST(WeightMetrics, DivideEveryUpdateByItsOldWeightInT5x) {
  const auto file = fixture_root() / "semantics" / "weight_metrics.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  const Json json = Json::read(file);
  const double rate = json["sgd_learning_rate"].as_double();
  const auto values = [](const Json& array) {
    std::vector<float> all;
    for (const double x : array["values"].as_doubles()) all.push_back(static_cast<float>(x));
    return all;
  };
  for (const auto& [name, old] : json["before"].members()) {
    const std::vector<float> before = values(old), gradient = values(json["gradients"][name]);
    std::vector<float> after = before;
    for (size_t i = 0; i < after.size(); ++i) after[i] -= static_cast<float>(rate) * gradient[i];
    const double want = json["metrics"]["weight_update_divided_by_weight_rms/" + name].as_double();
    EXPECT_NEAR(rms_of_ratio(before, after), want, 1e-5 * want) << name;
  }
}

TEST_P(TrainFixture, FollowsTheReference) {
  const HostArrays batches = read_safetensors(GetParam() / (*meta_)["batches"].as_string());
  const auto recorded = (*meta_)["checkpoint_steps"].as_ints();
  for (int64_t step = 0; step < (*meta_)["steps"].as_int(); ++step) {
    const auto before = parameters();
    const StepResult result = trainer_->train(batch_at(batches, step));
    EXPECT_FALSE(result.skipped);
    compare_metrics(step, result.metrics);
    const auto found = std::find(recorded.begin(), recorded.end(), step + 1);
    if (found != recorded.end()) {
      SCOPED_TRACE(fmt::format("after {} updates", step + 1));
      compare_checkpoint(step + 1);
      compare_weight_metrics(static_cast<size_t>(found - recorded.begin()), result.metrics);
      compare_update_ratios(before, result.metrics);
    }
    if (HasFailure()) break;
  }
}

std::string case_name(const ::testing::TestParamInfo<std::filesystem::path>& info) {
  return info.param.filename().string();
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TrainFixture);
INSTANTIATE_TEST_SUITE_P(Train, TrainFixture, ::testing::ValuesIn(fixture_folders("train")),
                         case_name);

}  // namespace
}  // namespace quintet::testing
