// Cases of cross_entropy and cross_entropy_t.

#include <cmath>
#include <utility>

#include "kernels/cross_entropy/cross_entropy.h"
#include "tests/ops/harness.h"

namespace quintet::testing {
namespace {

// Everything from a row of logits at a time, as the header defines it.
void oracle(const Arrays& in, Arrays& out, const Attrs& attrs, bool transposed) {
  const Array &x = in[0], &w = in[1], &targets = in[2], &weights = in[3];
  const int64_t e = x.depth(), v = w.size(transposed ? 0 : 1);
  const double smoothing = attrs.get_or<double>("label_smoothing", 0.0);
  const double z = attrs.get_or<double>("z_loss", 0.0),
               scale = attrs.get_or<double>("logit_scale", 1.0);
  const double on = 1 - smoothing,
               off = smoothing == 0 ? 0 : smoothing / static_cast<double>(v - 1);
  const double constant =
      -(on * std::log(on) + static_cast<double>(v - 1) * off * std::log(off + 1e-20));
  const auto at = [&](int64_t c, int64_t j) { return transposed ? j * e + c : c * v + j; };
  for (Array& a : out)
    if (!a.absent) std::fill(a.values.begin(), a.values.end(), 0.0);
  for (int64_t t = 0; t < x.rows(); ++t) {
    std::vector<double> logits(static_cast<size_t>(v));
    double total = 0;
    int64_t best = 0;
    for (int64_t j = 0; j < v; ++j) {
      double& logit = logits[static_cast<size_t>(j)];
      for (int64_t c = 0; c < e; ++c) logit += scale * x[t * e + c] * w[at(c, j)];
      total += std::exp(logit);
      if (logit > logits[static_cast<size_t>(best)]) best = j;
    }
    const double lse = std::log(total), weight = weights[t];
    const auto target = static_cast<int64_t>(targets[t]);
    if (!out[3].absent && target >= 0 && target < v)
      out[3][t] = logits[static_cast<size_t>(target)] - lse;
    if (weight == 0) continue;
    double loss = z * lse * lse - constant;
    for (int64_t j = 0; j < v; ++j) {
      const double soft = j == target ? on : off, log_p = logits[static_cast<size_t>(j)] - lse;
      loss -= soft * log_p;
      const double g = weight * scale * ((1 + 2 * z * lse) * std::exp(log_p) - soft);
      for (int64_t c = 0; c < e; ++c) {
        if (!out[4].absent) out[4][t * e + c] += g * w[at(c, j)];
        if (!out[5].absent) out[5][at(c, j)] += g * x[t * e + c];
      }
    }
    out[0][0] += weight * loss;
    out[1][0] += weight * z * lse * lse;
    out[2][0] += best == target ? 1 : 0;
  }
}

struct Setting {
  std::string name;
  Shape leading;
  int64_t width, vocabulary;
  Attrs attrs{};
  Operand targets = no_operand(), weights = no_operand();  // absent: any token, weights around 1
  bool has_log_probability = true, has_dx = true, has_dw = true;
};

int64_t product(const Shape& shape) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return n;
}

OpCase make_case(const Setting& s, bool transposed) {
  const std::string op = transposed ? "cross_entropy_t/" : "cross_entropy/";
  OpCase c{.name = op + s.name, .kernel = transposed ? cross_entropy_t_cpu : cross_entropy_cpu};
  Shape x = s.leading;
  x.push_back(s.width);
  const Shape w = transposed ? Shape{s.vocabulary, s.width} : Shape{s.width, s.vocabulary};
  Operand targets =
      s.targets.absent ? integers(s.leading, 0, std::max<int64_t>(s.vocabulary, 1)) : s.targets;
  Operand weights = s.weights.absent ? normal(s.leading) : s.weights;
  c.inputs = {normal(x), normal(w), std::move(targets), std::move(weights)};
  c.outputs = {result({}),
               result({}),
               result({}),
               s.has_log_probability ? result(s.leading) : no_result(),
               s.has_dx ? result(x) : no_result(),
               s.has_dw ? result(w) : no_result()};
  c.attrs = s.attrs;
  c.adds = {5};
  c.oracle = [transposed](const Arrays& in, Arrays& out, const Attrs& attrs) {
    oracle(in, out, attrs, transposed);
  };
  if (s.has_dx) c.own_gradients.push_back({.gradient = 4, .of = 0, .wrt = 0});
  if (s.has_dw) c.own_gradients.push_back({.gradient = 5, .of = 0, .wrt = 1});
  const int products = 1 + (s.has_dx ? 1 : 0) + (s.has_dw ? 1 : 0);
  c.flops = 2.0 * products * static_cast<double>(product(s.leading) * s.width * s.vocabulary);
  return c;
}

// Weights of 0 between others, and targets there that are no tokens.
void add_weights(std::vector<Setting>& settings) {
  const Operand some = values({2, 5}, {1, 0, 0.5, 0, 1, 0, 0, -2, 3, 0});
  const Operand wild = values({2, 5}, {3, -1, 6, 1000000, 0, 7, -2000000000, 2, 5, 4}, DType::i32);
  settings.push_back({.name = "weights",
                      .leading = {2, 5},
                      .width = 3,
                      .vocabulary = 7,
                      .attrs = {{"label_smoothing", 0.1}, {"z_loss", 0.01}},
                      .targets = wild,
                      .weights = some});
  settings.push_back({.name = "weights_alone",
                      .leading = {2, 5},
                      .width = 3,
                      .vocabulary = 7,
                      .targets = wild,
                      .weights = some,
                      .has_log_probability = false});
  settings.push_back({.name = "no_weight",
                      .leading = {4},
                      .width = 3,
                      .vocabulary = 7,
                      .weights = values({4}, {0, 0, 0, 0})});
}

void add_ties(std::vector<Setting>& settings) {
  // Width 0: all logits are 0, the first is the largest.
  settings.push_back({.name = "ties",
                      .leading = {4},
                      .width = 0,
                      .vocabulary = 130,
                      .targets = values({4}, {0, 1, 129, 0}, DType::i32),
                      .weights = values({4}, {1, 1, 1, 1})});
}

std::vector<Setting> tested_settings() {
  const Attrs both{{"label_smoothing", 0.1}, {"z_loss", 0.02}};
  std::vector<Setting> settings{
      {.name = "plain", .leading = {2, 3}, .width = 5, .vocabulary = 11},
      {.name = "one_token", .leading = {}, .width = 4, .vocabulary = 3},
      {.name = "one_word", .leading = {3}, .width = 2, .vocabulary = 1, .attrs = {{"z_loss", 0.1}}},
      {.name = "no_tokens", .leading = {0, 4}, .width = 5, .vocabulary = 6, .attrs = both},
      {.name = "smoothing",
       .leading = {7},
       .width = 6,
       .vocabulary = 9,
       .attrs = {{"label_smoothing", 0.3}}},
      {.name = "z_loss", .leading = {7}, .width = 6, .vocabulary = 9, .attrs = {{"z_loss", 0.05}}},
      {.name = "scaled",
       .leading = {3, 3},
       .width = 6,
       .vocabulary = 67,
       .attrs = {{"label_smoothing", 0.1}, {"z_loss", 1e-3}, {"logit_scale", 0.40824829}}},
      {.name = "blocks", .leading = {2, 9}, .width = 7, .vocabulary = 1031, .attrs = both},
      {.name = "chunks", .leading = {3, 350}, .width = 3, .vocabulary = 5, .attrs = both},
      {.name = "loss_alone",
       .leading = {5},
       .width = 4,
       .vocabulary = 70,
       .attrs = both,
       .has_log_probability = false,
       .has_dx = false,
       .has_dw = false},
      {.name = "dx_alone", .leading = {5}, .width = 4, .vocabulary = 70, .has_dw = false},
      {.name = "dw_alone", .leading = {5}, .width = 4, .vocabulary = 70, .has_dx = false}};
  add_weights(settings);
  add_ties(settings);
  return settings;
}

}  // namespace

std::vector<OpCase> cross_entropy_cases() {
  std::vector<OpCase> cases;
  for (const bool transposed : {false, true}) {
    for (const Setting& s : tested_settings()) cases.push_back(make_case(s, transposed));
    // T5 1.1 small, 8 x 64 targets; mT5's vocabulary.
    const Attrs usual{{"z_loss", 1e-4}};
    for (const Setting& s : std::vector<Setting>{{.name = "t5_small",
                            .leading = {8, 64},
                            .width = 512,
                            .vocabulary = 32128,
                            .attrs = usual},
                                                 {.name = "t5_small_loss",
                                                 .leading = {8, 64},
                                                 .width = 512,
                                                 .vocabulary = 32128,
                                                 .attrs = usual,
                                                 .has_dx = false,
                                                 .has_dw = false},
                                                 {.name = "bytes",
                                                 .leading = {32, 128},
                                                 .width = 512,
                                                 .vocabulary = 384,
                                                 .attrs = usual}}) {
      cases.push_back(make_case(s, transposed));
      cases.back().only_bench = true;
    }
  }
  return cases;
}

}  // namespace quintet::testing
