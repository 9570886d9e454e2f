// Every row of fixtures/metrics: metrics by their gin names, and the functions below them.
#include <algorithm>
#include <cmath>

#include "data/examples/dataset.h"
#include "data/metrics/sacrebleu.h"
#include "data/metrics/t5_metrics.h"
#include "data/metrics/text.h"
#include "tests/data/answers.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

constexpr double kRelative = 1e-6;

void expect_near(double got, double want, double tolerance, const std::string& what) {
  if (std::isnan(want) || std::isinf(want)) {
    EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want) << what << ": " << got;
  } else {
    EXPECT_NEAR(got, want, tolerance) << what;
  }
}

void expect_near(double got, const Json& want) {
  expect_near(got, want.as_double(), kRelative * std::abs(want.as_double()), want.path());
}

template <typename Range>
void expect_all_near(const Range& got, const Json& want) {
  ASSERT_EQ(std::size(got), want.size()) << want.path();
  for (size_t i = 0; i < want.size(); ++i) expect_near(static_cast<double>(got[i]), want[i]);
}

std::vector<std::string> strings(const Json& json) { return json.as_strings(); }
std::vector<std::string_view> views(const std::vector<std::string>& all) {
  return {all.begin(), all.end()};
}

class Row {
 public:
  Row(const Json& row, const testing::Configurables& names) : row_(row), names_(names) {}

  void check() const {
    const std::string fn = row_["fn"].as_string();
    if (fn.starts_with("sacrebleu.") && fn.ends_with("_bleu")) return check_bleu(fn);
    if (fn == "sacrebleu.corpus_chrf") return check_chrf();
    if (fn == "sacrebleu tokenizers") return check_tokenizers();
    if (fn == "rouge_scorer.score") return check_rouge_scorer();
    if (fn == "normalize") return check_normalize();
    if (fn.starts_with("postprocessors.")) return check_postprocessor("t5.data." + fn);
    check_metric(fn);
  }

 private:
  std::optional<Json> args() const {
    return row_.has("args") ? std::optional(row_["args"]) : std::nullopt;
  }
  template <typename T>
  T arg(const char* name, T otherwise) const {
    const auto all = args();
    if (!all || !all->has(name)) return otherwise;
    return gin::as<T>(testing::gin_value_of((*all)[name]), {name});
  }

  /// "metric", or "wrapper(metric)".
  MetricFn metric(const std::string& fn) const {
    const std::string module = "t5.evaluation.metrics.";
    const size_t bracket = fn.find('(');
    const std::string name = module + fn.substr(0, bracket);
    const auto all = args();
    gin::Callable::Named named;
    if (bracket != std::string::npos)
      named.emplace_back("metric_fn",
                         gin::to_value(metric(fn.substr(bracket + 1, fn.size() - bracket - 2))));
    if (!names_.knows(name)) throw std::runtime_error("none of our metrics is called " + name);
    return names_.make<MetricFn>(name, bracket == std::string::npos && all ? &*all : nullptr,
                                 named);
  }

  void check_metric(const std::string& fn) const {
    const MetricFn judge = metric(fn);
    const Answers targets = testing::answers_of(row_["targets"]);
    const MetricValues got =
        row_.has("scores")
            ? std::get<ScoreMetric>(judge.compute)(targets, row_["scores"].as_doubles())
            : judge(targets, testing::answers_of(row_["predictions"]));
    const auto want = row_["result"].members();
    EXPECT_EQ(got.size(), want.size());
    for (const auto& [name, value] : want) {
      ASSERT_TRUE(got.count(name)) << name;
      // The bootstrap draws its samples otherwise than NumPy.
      const double tolerance = fn == "rouge" ? 1.0 : kRelative * std::abs(value.as_double());
      expect_near(got.at(name), value.as_double(), tolerance, name);
    }
  }

  void check_bleu(const std::string& fn) const {
    metrics::BleuOptions options;
    options.tokenize = arg<std::string>("tokenize", options.tokenize);
    options.smooth_method = arg<std::string>("smooth_method", options.smooth_method);
    options.smooth_value = arg<std::optional<double>>("smooth_value", std::nullopt);
    options.lowercase = arg("lowercase", false);
    options.use_effective_order = arg("use_effective_order", false);
    metrics::BleuScore got;
    if (fn == "sacrebleu.sentence_bleu") {
      const auto references = strings(row_["targets"]);
      got = metrics::sentence_bleu(row_["predictions"].as_string(), views(references), options);
    } else {
      std::vector<std::vector<std::string>> streams;
      for (const Json& stream : row_["targets"].items()) streams.push_back(strings(stream));
      std::vector<std::vector<std::string_view>> references;
      for (const auto& stream : streams) references.push_back(views(stream));
      const auto hypotheses = strings(row_["predictions"]);
      got = metrics::corpus_bleu(views(hypotheses), references, options);
    }
    const Json want = row_["result"];
    expect_near(got.score, want["score"]);
    expect_near(got.bp, want["bp"]);
    const std::vector<double> counts = want["counts"].as_doubles();
    const std::vector<double> totals = want["totals"].as_doubles();
    EXPECT_TRUE(std::equal(got.counts.begin(), got.counts.end(), counts.begin(), counts.end()));
    EXPECT_TRUE(std::equal(got.totals.begin(), got.totals.end(), totals.begin(), totals.end()));
    if (want.has("precisions")) expect_all_near(got.precisions, want["precisions"]);
    if (!want.has("sys_len")) return;
    EXPECT_EQ(got.sys_len, want["sys_len"].as_int());
    EXPECT_EQ(got.ref_len, want["ref_len"].as_int());
  }

  void check_chrf() const {
    metrics::ChrfOptions options;
    options.char_order = arg("char_order", options.char_order);
    options.word_order = arg("word_order", options.word_order);
    options.beta = arg("beta", options.beta);
    const auto references = strings(row_["targets"][0]), hypotheses = strings(row_["predictions"]);
    expect_near(metrics::corpus_chrf(views(hypotheses), {views(references)}, options),
                row_["result"]["score"]);
  }

  void check_tokenizers() const {
    const std::u32string text = metrics::code_points(row_["text"].as_string());
    for (const auto& [name, want] : row_["result"].members()) {
      const auto tokenize = metrics::bleu_tokenizer(name.substr(std::string("tokenizer_").size()));
      const std::string tokens = metrics::utf8(tokenize(text));
      EXPECT_EQ(fmt::format("{}", fmt::join(metrics::split(tokens), " ")), want.as_string())
          << name;
    }
  }

  void check_rouge_scorer() const {
    for (const bool use_stemmer : {false, true}) {
      const Json want = row_[use_stemmer ? "result_use_stemmer" : "result"];
      std::vector<std::string> keys;
      for (const auto& [key, value] : want.members()) keys.push_back(key);
      const auto got = metrics::RougeScorer({keys, use_stemmer})
                           .score(row_["targets"].as_string(), row_["predictions"].as_string());
      for (size_t k = 0; k < keys.size(); ++k)
        expect_all_near(std::array{got[k].precision, got[k].recall, got[k].fmeasure},
                        want[keys[k]]);
    }
  }

  void check_normalize() const {
    const std::string text = row_["text"].as_string();
    EXPECT_EQ(metrics::normalize_squad(text), row_["result"]["squad"].as_string());
    EXPECT_EQ(metrics::normalize_trivia_qa(text), row_["result"]["trivia_qa"].as_string());
  }

  void check_postprocessor(const std::string& name) const {
    const auto all = args();
    const auto postprocess = names_.make<PostprocessFn>(name, all ? &*all : nullptr);
    const Answer got = postprocess(row_["text"].as_string(), Example(), false);
    const Json want = row_["result"];
    if (name.ends_with("string_to_float")) return expect_near(got.number(), want);
    EXPECT_EQ(to_string(got), to_string(testing::answer_of(want)));
  }

  const Json& row_;
  const testing::Configurables& names_;
};

TEST(MetricsGolden, EqualTheReferences) {
  const auto file = ::quintet::testing::fixture_root() / "metrics" / "metrics.jsonl";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  const testing::Configurables names;
  int compared = 0;
  for (const Json& row : Json::read_lines(file)) {
    SCOPED_TRACE(row.path() + " " + row["fn"].as_string());
    ASSERT_NO_THROW(Row(row, names).check());
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace quintet::data
