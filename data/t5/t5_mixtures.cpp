#include <algorithm>

#include "data/t5/sentinels.h"
#include "data/t5/t5_tasks.h"
#include "data/tasks/mixing_rates.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// A task's name and its rate; none: computed by t5.data.rate_num_examples.
using Weight = std::pair<std::string, std::optional<double>>;
using Weights = std::vector<Weight>;

// Numbers of training examples, as T5 froze them. Sets without a training split have weight 0.
const Weights kGlue = {
    {"glue_cola_v002", 8551},      {"glue_sst2_v002", 67349}, {"glue_mrpc_v002", 3668},
    {"glue_qqp_v002", 363849},     {"glue_stsb_v002", 5749},  {"glue_mnli_v002", 392702},
    {"glue_qnli_v002", 104743},    {"glue_rte_v002", 2490},   {"glue_mnli_mismatched_v002", 0},
    {"glue_mnli_matched_v002", 0}, {"glue_ax_v002", 0}};
const Weights kSuperGlue = {{"dpr_v001_simple", 1322},
                            {"super_glue_wsc_v102_simple_train", 259},
                            {"super_glue_wsc_v102_simple_eval", 0},
                            {"super_glue_boolq_v102", 9427},
                            {"super_glue_cb_v102", 250},
                            {"super_glue_copa_v102", 400},
                            {"super_glue_multirc_v102", 27243},
                            {"super_glue_record_v102", 138854},
                            {"super_glue_rte_v102", 2490},
                            {"super_glue_wic_v102", 5428},
                            {"super_glue_axb_v102", 0},
                            {"super_glue_axg_v102", 0}};
const std::vector<std::string> kOthers = {"cnn_dailymail_v002", "squad_v010_allanswers",
                                          "wmt_t2t_ende_v003", "wmt15_enfr_v003",
                                          "wmt16_enro_v003"};
const std::string kC4 = "c4_v020_unsupervised";

Weights with_rate(const std::vector<std::string>& names, std::optional<double> rate) {
  Weights weights;
  for (const std::string& name : names) weights.emplace_back(name, rate);
  return weights;
}

Weights operator+(Weights a, const Weights& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// GLUE and SuperGLUE share RTE, which counts half in each where both are mixed.
Weights without_doubles(Weights weights) {
  for (auto& [name, rate] : weights)
    if (rate && name.find("glue") != std::string::npos && name.find("rte") != std::string::npos)
      *rate *= 0.5;
  return weights;
}

Weights with_one_rate(Weights weights, std::optional<double> value) {
  for (auto& [name, rate] : weights) rate = value;
  return weights;
}

Weights without(Weights weights, const Weights& left_out) {
  std::erase_if(weights, [&](const Weight& weight) {
    return std::any_of(left_out.begin(), left_out.end(),
                       [&](const Weight& other) { return other.first == weight.first; });
  });
  return weights;
}

class Adder {
 public:
  Adder(TaskRegistry& registry, const gin::Config& config) : registry_(registry), config_(config) {}
  /// `unsupervised`: C4 is added, at t5.data.rate_unsupervised.
  void operator()(const std::string& name, const Weights& weights, bool unsupervised = false) {
    registry_.add(
        name,
        [name, weights, unsupervised,
         &config = config_](const TaskRegistry& registry) -> ProviderPtr {
          std::vector<Mixture::Part> parts;
          if (unsupervised)
            parts.emplace_back(registry.get(kC4),
                               configured_rate("t5.data.rate_unsupervised", config));
          for (const auto& [task, rate] : weights)
            parts.emplace_back(
                registry.get(task),
                rate ? MixtureRate(*rate) : configured_rate("t5.data.rate_num_examples", config));
          return std::make_shared<Mixture>(name, std::move(parts));
        },
        "Mixture");
  }

 private:
  TaskRegistry& registry_;
  const gin::Config& config_;
};

}  // namespace

void register_t5_mixtures(TaskRegistry& registry, const gin::Config& config) {
  Adder add(registry, config);
  const Weights others = with_rate(kOthers, {}), c4 = {{kC4, {}}};
  const Weights supervised = kGlue + kSuperGlue + others;

  add("glue_v002_proportional", kGlue);
  add("super_glue_v102_proportional", kSuperGlue);
  Weights sentinel = kSuperGlue;
  for (auto& [name, rate] : sentinel) name = sentinel_task_name(name, 1);
  add("super_glue_v102_proportional_sentinel", sentinel);
  add("glue_mnli_and_dev_v002",
      with_rate({"glue_mnli_v002", "glue_mnli_mismatched_v002", "glue_mnli_matched_v002"}, 1));
  add("en_mix", with_one_rate(kGlue + kSuperGlue + Weights{{"squad_v010_allanswers", {}}}, {}),
      true);
  add("all_equal", with_one_rate(supervised + c4, 1));
  add("all_proportional", without_doubles(supervised + c4));
  add("all_mix", without_doubles(supervised), true);

  const std::string leave_out = "leave_one_out_";
  add(leave_out + "glue_v002_proportional", without(supervised + c4, kGlue));
  add(leave_out + "super_glue_v102_proportional", without(supervised + c4, kSuperGlue));
  for (const std::string& name : kOthers)
    add(leave_out + name, without(without_doubles(supervised + c4), {{name, {}}}));

  const std::vector<std::string> translation = {"wmt_t2t_ende_v003", "wmt15_enfr_v003"};
  std::vector<std::string> large = translation;
  large.push_back("cnn_dailymail_v002");
  add("large_supervised_equal", with_rate(large, 1));
  add("large_supervised_proportional", with_rate(large, {}));
  add("large_translation_equal", with_rate(translation, 1));
  add("squad_trivia_qa_equal", with_rate({"squad_v010_allanswers", "trivia_qa_v010"}, 1));
  add("wsc_dpr_simple_proportional", Weights(kSuperGlue.begin(), kSuperGlue.begin() + 3));
}

}  // namespace quintet::data
