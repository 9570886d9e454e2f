// MetricValues beyond the fixtures: input that cannot be judged, Unicode, sklearn's functions, shards.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "data/metrics/plain/plain_text.h"
#include "data/metrics/sacrebleu.h"
#include "data/metrics/sklearn.h"
#include "data/metrics/t5_metrics.h"
#include "data/metrics/text.h"
#include "tests/data/answers.h"
#include "tests/data/files.h"

namespace quintet::data {
namespace {

using testing::contains;

template <typename Work>
std::string data_error(Work work) {
  return testing::message_of(ExitCode::kData, work);
}
template <typename Work>
std::string usage_error(Work work) {
  return testing::message_of(ExitCode::kUsage, work);
}

/// Each metric of predictions with a pair that it can judge.
struct Judged {
  MetricFn metric;
  Answer target, prediction;
};

std::vector<Judged> judged_metrics() {
  using namespace metrics;
  const Answer list = Answers{"a cat"};
  const Answer one = Fields{{"group", 0}, {"value", 1}};
  return {{bleu(), "a cat", "a dog"},
          {rouge({}, false), "a cat", "a dog"},
          {rouge_mean(), "a cat", "a dog"},
          {squad(), list, "a dog"},
          {trivia_qa(), list, "a dog"},
          {coqa_f1(), list, "a dog"},
          {sharded_squad(), list, "a dog"},
          {span_squad(), Fields{{"answers", list}, {"context", "a cat"}}, "start: 0 end: 1"},
          {accuracy(), 1, 0},
          {sequence_accuracy(), "a", "b"},
          {all_match(), 1, 1},
          {f1_score_with_invalid(), 1, 0},
          {multirc_f1_over_all_answers(), one, one},
          {mean_multiclass_f1(3), 1, 2},
          {auc(), 1, 0.5},
          {edit_distance(), "a cat", "a dog"},
          {deduplicate_metric(accuracy()), one, one},
          {mean_group_metric(all_match()), one, one},
          {exact_match(), "a cat", "a dog"},
          {word_f1(), "a cat", "a dog"},
          {chrf(), "a cat", "a dog"},
          {matthews(), "a cat", "a dog"},
          {confusion_matrix({"a cat"}), "a cat", "a dog"},
          {sklearn_metrics_wrapper("r2_score"), 0.5, 1.5},
          {sklearn_metrics_wrapper("matthews_corrcoef"), 0, 1}};
}

TEST(MetricValues, UnequalCountsAndNoExamplesAreErrorsThatNameTheMetric) {
  for (const Judged& j : judged_metrics()) {
    SCOPED_TRACE(j.metric.name);
    EXPECT_NO_THROW(j.metric({j.target}, {j.prediction}));
    const std::string unequal = data_error([&] { j.metric({j.target, j.target}, {j.prediction}); });
    EXPECT_TRUE(contains(unequal, "2")) << unequal;
    EXPECT_TRUE(contains(unequal, "1")) << unequal;
    const std::string none = data_error([&] { j.metric({}, {}); });
    EXPECT_TRUE(contains(none, "no example")) << none;
  }
}

TEST(MetricValues, TextThatIsNotUtf8IsAnErrorThatNamesTheExample) {
  for (const std::string bad : {"lone \xED\xA0\x80 surrogate", "cut \xC3", "over\xC0\xAFlong"})
    for (const MetricFn& metric :
         {metrics::bleu(), metrics::rouge_mean(), metrics::edit_distance()}) {
      const std::string prediction = data_error([&] { metric({"a", "b"}, {"a", bad}); });
      EXPECT_TRUE(contains(prediction, "prediction 1")) << prediction;
      EXPECT_TRUE(contains(prediction, "UTF-8")) << prediction;
      const std::string target = data_error([&] { metric({bad, "b"}, {"a", "b"}); });
      EXPECT_TRUE(contains(target, "target 0")) << target;
    }
  const std::string squad = data_error([] {
    metrics::squad()({Answer(Answers{"a", "\xED\xB0\x80"})}, {"a"});
  });
  EXPECT_TRUE(contains(squad, "UTF-8")) << squad;
}

TEST(MetricValues, AnswersOfAnotherTypeAreErrorsThatSayWhatWasFound) {
  const std::string text = data_error([] { metrics::bleu()({"a", "b"}, {"a", 7}); });
  EXPECT_EQ(text, "bleu: prediction 1: expected text, found 7");
  const std::string list = data_error([] { metrics::squad()({"a"}, {"a"}); });
  EXPECT_EQ(list, "squad: target 0: expected a list, found a");
  const std::string field = data_error([] {
    metrics::multirc_f1_over_all_answers()({Fields{{"x", 1}}}, {Fields{{"value", 1}}});
  });
  EXPECT_TRUE(contains(field, "target 0: has no field 'value'")) << field;
  const std::string binary = data_error([] { metrics::f1_score_with_invalid()({2}, {1}); });
  EXPECT_TRUE(contains(binary, "expected class 0 or 1, found 2")) << binary;
  const std::string empty = data_error([] { metrics::squad()({Answer(Answers{})}, {"a"}); });
  EXPECT_TRUE(contains(empty, "the list is empty")) << empty;
}

TEST(MetricValues, NanScoresAreErrorsThatNameTheExample) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto score = [](const MetricFn& metric, const Answers& targets, const Scores& scores) {
    return data_error([&] { std::get<ScoreMetric>(metric.compute)(targets, scores); });
  };
  EXPECT_TRUE(contains(score(metrics::score_auc(), {0, 1}, {0.5, nan}), "score 1 is NaN"));
  const Answers choices = {Answers{Answers{0, 0}, 1, 1.0, 3}, Answers{Answers{0, 1}, 0, 1.0, 3}};
  EXPECT_TRUE(
      contains(score(metrics::rank_classification(), choices, {nan, 0.5}), "score 0 is NaN"));
  EXPECT_TRUE(contains(score(metrics::rank_classification(), choices, {0.5}), "2 targets but 1"));
  const Answers twice = {choices[0], choices[0]};
  EXPECT_TRUE(contains(score(metrics::rank_classification(), twice, {0.1, 0.2}), "index (0, 0)"));
  const Answers short_tuple = {Answers{Answers{0, 0}, 1, 1.0}};
  EXPECT_TRUE(contains(score(metrics::rank_classification(), short_tuple, {0.1}), "expected (idx"));
  EXPECT_TRUE(contains(score(metrics::rank_classification({.num_classes = 3}), choices, {0.1, 0.2}),
                       "no multiple of num_classes"));
  const MetricValues pearson = metrics::pearson_corrcoef()({1.0, 2.0}, {nan, 1.0});
  EXPECT_TRUE(std::isnan(pearson.at("pearson_corrcoef")));
  EXPECT_TRUE(std::isnan(metrics::spearman_corrcoef()({1.0, 2.0}, {nan, 1.0}).begin()->second));
}

TEST(MetricValues, AMetricOfScoresDoesNotComparePredictions) {
  EXPECT_EQ(metrics::score_auc().model_output_type(), ModelOutputType::score);
  EXPECT_EQ(metrics::squad().model_output_type(), ModelOutputType::prediction);
  EXPECT_TRUE(contains(usage_error([] { metrics::score_auc()({0}, {1}); }), "score_auc"));
}

TEST(MetricValues, UnknownOptionsAreErrorsBeforeAnythingIsComputed) {
  EXPECT_TRUE(contains(usage_error([] { metrics::bleu("13b"); }), "did you mean '13a'"));
  EXPECT_TRUE(contains(usage_error([] { metrics::rouge({{"rouge0"}}); }), "rouge0"));
  EXPECT_TRUE(contains(usage_error([] { metrics::sklearn_metrics_wrapper("f1_scor"); }),
                       "did you mean 'f1_score'"));
  EXPECT_TRUE(contains(usage_error([] { metrics::mean_multiclass_f1(0); }), "positive"));
}

/// Values of scikit-learn 1.9.1.
TEST(Sklearn, EqualsScikitLearn) {
  const Answers targets = {0, 1, 2, 2, 1, 0, 3, 3, 1, 2, 0, -1};
  const Answers predictions = {0, 2, 2, 1, 1, 0, 3, -1, 1, 2, 1, 0};
  const Answers binary_targets = {0, 1, 1, 0, 1, 0, 1, 1};
  const Answers binary_predictions = {0, 1, 0, 0, 1, 1, 1, 0};
  const auto value = [](const char* name, const Answers& wanted, const Answers& found,
                        const metrics::SklearnOptions& options = {}) {
    return metrics::sklearn_metrics_wrapper(name, options)(wanted, found).at(name);
  };
  const std::pair<const char*, double> plain[] = {
      {"accuracy_score", 0.5833333333333334},    {"zero_one_loss", 0.41666666666666663},
      {"hamming_loss", 0.4166666666666667},      {"balanced_accuracy_score", 0.5},
      {"matthews_corrcoef", 0.4637130167514838}, {"cohen_kappa_score", 0.45945945945945943}};
  for (const auto& [name, want] : plain)
    EXPECT_NEAR(value(name, targets, predictions), want, 1e-12) << name;

  const struct {
    const char* name;
    double binary, binary_of_0, micro, macro, weighted, micro_of, macro_of, weighted_of;
  } averaged[] = {
      {"precision_score", 0.75, 0.5, 0.5833333333333334, 0.5666666666666667, 0.625,
       0.5714285714285714, 0.38888888888888884, 0.5833333333333334},
      {"recall_score", 0.6, 0.6666666666666666, 0.5833333333333334, 0.5, 0.5833333333333334,
       0.6666666666666666, 0.4444444444444444, 0.6666666666666666},
      {"f1_score", 0.6666666666666666, 0.5714285714285714, 0.5833333333333334, 0.5142857142857142,
       0.5873015873015873, 0.6153846153846154, 0.41269841269841273, 0.6190476190476191},
      {"jaccard_score", 0.5, 0.4, 0.4117647058823529, 0.38, 0.43333333333333335, 0.4444444444444444,
       0.3, 0.45}};
  for (const auto& row : averaged) {
    const std::optional<Answers> some = Answers{0, 1, 7};
    EXPECT_NEAR(value(row.name, binary_targets, binary_predictions), row.binary, 1e-12) << row.name;
    EXPECT_NEAR(value(row.name, binary_targets, binary_predictions, {.pos_label = 0}),
                row.binary_of_0, 1e-12)
        << row.name;
    const std::tuple<const char*, double, double> averages[] = {
        {"micro", row.micro, row.micro_of},
        {"macro", row.macro, row.macro_of},
        {"weighted", row.weighted, row.weighted_of}};
    for (const auto& [average, all, labelled] : averages) {
      EXPECT_NEAR(value(row.name, targets, predictions, {.average = average}), all, 1e-12)
          << row.name << " " << average;
      EXPECT_NEAR(value(row.name, targets, predictions, {.average = average, .labels = some}),
                  labelled, 1e-12)
          << row.name << " " << average;
    }
    EXPECT_THROW(value(row.name, targets, predictions), Error);  // binary of four classes
  }
  EXPECT_NEAR(value("fbeta_score", binary_targets, binary_predictions, {.beta = 2}), 0.625, 1e-12);
  EXPECT_EQ(value("f1_score", {0, 0}, {0, 0}, {.zero_division = 1}), 1);
  EXPECT_NEAR(value("f1_score", {"a", "b", "a"}, {"a", "a", "a"}, {.pos_label = "a"}), 0.8, 1e-12);

  const Answers x = {0.5, 1.25, -2.0, 3.0, 0}, y = {0.25, 1.5, -1.0, 2.0, 0.5};
  const std::pair<const char*, double> numeric[] = {
      {"mean_squared_error", 0.475},
      {"root_mean_squared_error", 0.689202437604511},
      {"mean_absolute_error", 0.6},
      {"median_absolute_error", 0.5},
      {"max_error", 1.0},
      {"r2_score", 0.8214285714285714},
      {"explained_variance_score", 0.825187969924812}};
  for (const auto& [name, want] : numeric) EXPECT_NEAR(value(name, x, y), want, 1e-12) << name;
  EXPECT_EQ(value("r2_score", {1, 1, 1}, {1, 1, 2}), 0);
  EXPECT_EQ(value("r2_score", {1, 1, 1}, {1, 1, 1}), 1);

  const Answers scores = {0.1, 0.9, 0.4, 0.4, 0.8, 0.35, 0.4, 0.2};
  EXPECT_NEAR(value("roc_auc_score", binary_targets, scores), 0.8, 1e-12);
  EXPECT_NEAR(value("average_precision_score", binary_targets, scores), 0.8628571428571428, 1e-12);
  EXPECT_TRUE(std::isnan(value("roc_auc_score", {1, 1}, {0.1, 0.2})));
  EXPECT_EQ(value("average_precision_score", {0, 0}, {0.1, 0.2}), 0);
  EXPECT_TRUE(std::isnan(value("cohen_kappa_score", {1, 1}, {1, 1})));
  EXPECT_EQ(metrics::sklearn_metrics_wrapper(
                "accuracy_score", {.metric_dict_str = "percent", .factor = 100})({1, 2}, {1, 1}),
            (MetricValues{{"percent", 50.0}}));
}

/// Stems of NLTK 3.10.4.
TEST(PorterStemmer, EqualsNltk) {
  const std::string stems =
      "caresses:caress ponies:poni ties:tie dies:die cries:cri caress:caress cats:cat feed:feed "
      "agreed:agre plastered:plaster bled:bled motoring:motor sing:sing conflated:conflat "
      "troubled:troubl sized:size hopping:hop tanned:tan falling:fall hissing:hiss fizzed:fizz "
      "failing:fail filing:file happy:happi sky:sky enjoy:enjoy fly:fli relational:relat "
      "conditional:condit rational:ration valenci:valenc hesitanci:hesit digitizer:digit "
      "conformabli:conform radically:radic differently:differ vilely:vile analogously:analog "
      "vietnamization:vietnam predication:predic operator:oper feudalism:feudal "
      "decisiveness:decis hopefulness:hope callousness:callous formality:formal "
      "sensitivity:sensit sensibility:sensibl hopefully:hope archaeology:archaeolog "
      "geology:geolog triplicate:triplic formative:form formalize:formal electricity:electr "
      "electrical:electr hopeful:hope goodness:good revival:reviv allowance:allow "
      "inference:infer airliner:airlin gyroscopic:gyroscop adjustable:adjust defensible:defens "
      "irritant:irrit replacement:replac adjustment:adjust dependent:depend adoption:adopt "
      "homologous:homolog communism:commun activate:activ angularity:angular effective:effect "
      "bowdlerize:bowdler probate:probat rate:rate cease:ceas controll:control roll:roll "
      "skies:sky dying:die news:news innings:inning proceed:proceed yyyy:yyyi yes:ye toying:toy "
      "syzygy:syzygi died:die studied:studi lied:lie ability:abil oing:o ed:ed ing:ing ion:ion "
      "sion:sion abed:abe y:y 1920s:1920 owned:own using:use aided:aid axed:axe";
  for (std::string_view pair : metrics::split(std::string_view(stems))) {
    const size_t colon = pair.find(':');
    EXPECT_EQ(metrics::porter_stem(pair.substr(0, colon)), pair.substr(colon + 1));
  }
}

TEST(Text, IsPythons) {
  // A sigma at the end of a word, a letter that grows, and a Kelvin sign that becomes ASCII.
  EXPECT_EQ(metrics::lower("ΟΔΟΣ ΣΑΣ İ K"), "οδος σας i\xCC\x87 k");
  EXPECT_EQ(metrics::split(std::string_view("\x1C a\xE3\x80\x80"
                                            "b\xC2\xA0\xE2\x80\x8B \xC2\x85"
                                            "c\n")),
            (std::vector<std::string_view>{"a", "b", "\xE2\x80\x8B", "c"}));
  EXPECT_TRUE(metrics::is_word(U'½') && metrics::is_word(U'٣') && metrics::is_word(U'語'));
  EXPECT_FALSE(metrics::is_word(0x0301));  // a combining accent
  const std::pair<const char*, double> floats[] = {{" 4.2\xE2\x80\x83", 4.2},
                                                   {"1_000.5", 1000.5},
                                                   {"+.5", 0.5},
                                                   {"5.", 5},
                                                   {"-1e3", -1000},
                                                   {"٣٫", -1},
                                                   {"٣.٥", 3.5},
                                                   {"1__0", -1},
                                                   {"_1", -1},
                                                   {"1_", -1},
                                                   {"0x10", -1},
                                                   {"1e", -1},
                                                   {"", -1},
                                                   {"nan(1)", -1},
                                                   {"--1", -1},
                                                   {"1 2", -1},
                                                   {"e5", -1},
                                                   {".", -1},
                                                   {"1e400", HUGE_VAL}};
  for (const auto& [text, want] : floats)
    EXPECT_EQ(metrics::parse_float(text).value_or(-1), want) << text;
  EXPECT_TRUE(std::isnan(*metrics::parse_float("NaN")));
  EXPECT_EQ(metrics::parse_float("-Infinity"), -HUGE_VAL);
}

TEST(MetricValues, ShardsOfSquadMergeToTheWhole) {
  const Answers targets = {Answers{"a cat"}, Answers{"two dogs", "dogs"}, Answers{"x"}};
  const Answers predictions = {"cat", "dogs bark", "y"};
  metrics::ShardedSquad merged;
  for (size_t i = 0; i < targets.size(); ++i)
    merged = merged.merge(metrics::ShardedSquad::of({targets[i]}, {predictions[i]}));
  EXPECT_EQ(merged.count, 3);
  const MetricValues whole = metrics::squad()(targets, predictions);
  EXPECT_NEAR(merged.compute().at("f1"), whole.at("f1"), 1e-9);
  EXPECT_NEAR(merged.compute().at("em"), whole.at("em"), 1e-9);
}

TEST(MetricValues, GroupsReportTheirOwnScores) {
  const auto pair = [](Answer group, int value) {
    return Answer(Fields{{"group", std::move(group)}, {"value", value}});
  };
  const MetricValues got = metrics::mean_group_metric(metrics::accuracy(), "group", "value", true)(
      {pair(Answers{1, 2}, 0), pair("b", 1), pair(Answers{1, 2}, 1)},
      {pair(0, 0), pair(0, 0), pair(0, 0)});
  EXPECT_EQ(got,
            (MetricValues{{"accuracy", 25.0}, {"(1, 2)-accuracy", 50.0}, {"b-accuracy", 0.0}}));
}

TEST(MetricValues, RougesBootstrapIsTheSameEachTime) {
  const Answers targets = {"a b c", "d e f", "g h i"}, predictions = {"a b c", "d x y", "z z z"};
  const MetricFn rouge = metrics::rouge({}, false);
  EXPECT_EQ(rouge(targets, predictions), rouge(targets, predictions));
}

TEST(Metrics, RougeTakesTheIdsOfAVocabularyAsTokens) {
  metrics::RougeOptions options{.score_keys = {"rouge1", "rougeLsum"}};
  EXPECT_EQ(metrics::rouge_mean(options)({"ab"}, {"ac"}),
            (MetricValues{{"rouge1", 0.0}, {"rougeLsum", 0.0}}));
  options.tokenizer = std::make_shared<ByteVocabulary>();
  EXPECT_EQ(metrics::rouge_mean(options)({"ab"}, {"ac"}),
            (MetricValues{{"rouge1", 50.0}, {"rougeLsum", 50.0}}));
}

TEST(PlainText, ScoresOfTexts) {
  using namespace metrics;
  const Answers targets = {"Paris", "the cat", "3"}, predictions = {" Paris\n", "a big cat", "2"};
  EXPECT_NEAR(exact_match()(targets, predictions).at("exact_match"), 100.0 / 3, 1e-9);
  // Of the second, "cat" against "big cat": F1 2/3.
  EXPECT_NEAR(word_f1()(targets, predictions).at("f1"), 100 * (1 + 2.0 / 3) / 3, 1e-9);
  EXPECT_EQ(chrf()(targets, targets).at("chrf"), 100);
  EXPECT_EQ(matthews()({"a", "b", "a", "b"}, {"a", "b ", "a", "b"}).at("matthews_corrcoef"), 100);
  EXPECT_EQ(matthews()({"a", "b"}, {"b", "a"}).at("matthews_corrcoef"), -100);
  EXPECT_NEAR(spearman()({"1", "2.5", "-3"}, {"10", "11", "9"}).at("spearman_corrcoef"), 100, 1e-9);
  // What is no number is below all.
  EXPECT_NEAR(spearman()({"1", "2.5", "-3"}, {"10", "11", "none"}).at("spearman_corrcoef"), 100,
              1e-9);
  EXPECT_TRUE(contains(data_error([] {
                         spearman()({"1", "x"}, {"1", "2"});
                       }),
                       "target 1: expected a number, found 'x'"));
}

TEST(PlainText, AConfusionMatrixCountsWhatIsNoClass) {
  const auto matrix = metrics::confusion_matrix({"no", "yes"});
  const MetricValues got = matrix({"no", "yes", "yes", "no"}, {"no", " no", "maybe", "no"});
  const Text* text = got.at("confusion_matrix").get_if<Text>();
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(text->textdata,
            "\n| target \\ predicted | no | yes | other |\n|---|---|---|---|\n| no | 2 | 0 | 0 |\n"
            "| yes | 1 | 0 | 1 |");
  EXPECT_TRUE(contains(data_error([&] { matrix({"maybe"}, {"no"}); }),
                       "target 0: 'maybe' is none of the classes"));
}

}  // namespace
}  // namespace quintet::data
