// Cases of the phases of norms and losses whose last axis is sharded over ranks (op/ops.def): what
// one rank computes on its block.

#include <cmath>
#include <utility>

#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/rms_norm/rms_norm.h"
#include "tests/ops/harness.h"

namespace quintet::testing {
namespace {

// Norms. A block of `depth` columns of rows three times as long.

double reciprocal_root(double squares, const Array& x, const Attrs& attrs) {
  return 1 / std::sqrt(squares / static_cast<double>(x.global.back()) +
                       attrs.get_or<double>("eps", 1e-6));
}

/// out[0]: sums of squares; out[1], if there: sums of products.
void sums_oracle(const Arrays& in, Arrays& out, const Attrs&) {
  const Array& x = in[0];
  const int64_t e = x.depth();
  for (int64_t row = 0; row < x.rows(); ++row) {
    double squares = 0, products = 0;
    for (int64_t i = 0; i < e; ++i) {
      squares += x[row * e + i] * x[row * e + i];
      if (in.size() > 1) products += x[row * e + i] * in[1][i] * in[2][row * e + i];
    }
    out[0][row] = squares;
    if (in.size() > 1) out[1][row] = products;
  }
}

void apply_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  const Array& x = in[0];
  const int64_t e = x.depth();
  for (int64_t i = 0; i < x.rows() * e; ++i)
    out[0][i] = x[i] * in[1][i % e] * reciprocal_root(in[2][i / e], x, attrs);
}

void grad_apply_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  const Array &x = in[0], &scale = in[1], &dy = in[2], &squares = in[3], &products = in[4];
  const int64_t e = x.depth();
  std::fill(out[1].values.begin(), out[1].values.end(), 0.0);
  for (int64_t i = 0; i < x.rows() * e; ++i) {
    const double r = reciprocal_root(squares[i / e], x, attrs);
    const double mean = products[i / e] / static_cast<double>(x.global.back());
    out[0][i] = r * (dy[i] * scale[i % e] - x[i] * r * r * mean);
    out[1][i % e] += dy[i] * x[i] * r;
  }
}

Operand positive(const Shape& shape, double mean) {
  Operand operand = normal(shape);
  operand.value = [mean](int64_t, std::mt19937_64& random) {
    return std::uniform_real_distribution<double>(0.5 * mean, 1.5 * mean)(random);
  };
  return operand;
}

void add_norms(std::vector<OpCase>& cases, int64_t rows, int64_t depth, double eps) {
  const Shape x{rows, depth}, begin{0, depth}, whole{rows, 3 * depth};
  const auto block = [&] {
    Operand operand = normal(x);
    operand.origin = begin, operand.global = whole;
    return operand;
  };
  const auto of_block = [&] {
    Result made = result(x);
    made.origin = begin, made.global = whole;
    return made;
  };
  const Operand scale = normal({depth}),
                squares = positive({rows}, 3.0 * static_cast<double>(depth));
  const auto add = [&](const char* op, Kernel kernel, std::vector<Operand> in,
                       std::vector<Result> out, Oracle oracle) {
    cases.push_back({.name = fmt::format("{}/{}x{}", op, rows, depth),
                     .kernel = kernel,
                     .inputs = std::move(in),
                     .outputs = std::move(out),
                     .attrs = {{"eps", eps}},
                     .oracle = std::move(oracle)});
  };
  add("rms_norm_squares", rms_norm_squares_cpu, {block()}, {result({rows})}, sums_oracle);
  add("rms_norm_products", rms_norm_products_cpu, {block(), scale, block()},
      {result({rows}), result({rows})}, sums_oracle);
  add("rms_norm_apply", rms_norm_apply_cpu, {block(), scale, squares}, {of_block()}, apply_oracle);
  add("rms_norm_grad_apply", rms_norm_grad_apply_cpu,
      {block(), scale, block(), squares, normal({rows}, static_cast<double>(depth))},
      {of_block(), result({depth})}, grad_apply_oracle);
}

// Losses. One of `blocks` blocks of a vocabulary, with numbers of all of them that belong together.

struct Logits {
  int64_t width, begin, columns;
  double scale;
  bool transposed;

  Logits(const Arrays& in, const Attrs& attrs, bool is_transposed)
      : width(in[0].depth()),
        begin(in[1].origin[is_transposed ? 0 : 1]),
        columns(in[1].size(is_transposed ? 0 : 1)),
        scale(attrs.get_or<double>("logit_scale", 1.0)),
        transposed(is_transposed) {}
  int64_t at(int64_t c, int64_t j) const { return transposed ? j * width + c : c * columns + j; }
  double of(const Arrays& in, int64_t token, int64_t j) const {
    double sum = 0;
    for (int64_t c = 0; c < width; ++c) sum += scale * in[0][token * width + c] * in[1][at(c, j)];
    return sum;
  }
};

void statistics_oracle(const Arrays& in, Arrays& out, const Attrs& attrs, bool transposed) {
  const Logits logits(in, attrs, transposed);
  for (int64_t t = 0; t < in[0].rows(); ++t) {
    int64_t best = 0;
    double exponentials = 0, sum = 0, target = 0;
    for (int64_t j = 0; j < logits.columns; ++j) {
      const double x = logits.of(in, t, j);
      if (x > logits.of(in, t, best)) best = j;
      sum += x;
      if (logits.begin + j == static_cast<int64_t>(in[2][t])) target = x;
    }
    const double largest = logits.of(in, t, best);
    for (int64_t j = 0; j < logits.columns; ++j)
      exponentials += std::exp(logits.of(in, t, j) - largest);
    const double numbers[] = {largest, exponentials, sum, target,
                              static_cast<double>(logits.begin + best)};
    std::copy(std::begin(numbers), std::end(numbers), out[0].values.begin() + 5 * t);
  }
}

void loss_oracle(const Arrays& in, Arrays& out, const Attrs& attrs, bool transposed) {
  const Logits logits(in, attrs, transposed);
  const auto all = static_cast<double>(in[1].global[transposed ? 0 : 1]);
  const double s = attrs.get_or<double>("label_smoothing", 0.0),
               z = attrs.get_or<double>("z_loss", 0.0);
  const double on = 1 - s, off = s / (all - 1);
  const double constant = -(on * std::log(on) + (all - 1) * off * std::log(off + 1e-20));
  const int64_t blocks = in[4].size(-2);
  for (Array& a : out)
    if (!a.absent) std::fill(a.values.begin(), a.values.end(), 0.0);
  for (int64_t t = 0; t < in[0].rows(); ++t) {
    double exponentials = 0, sum = 0;
    int64_t best = 0;
    const auto number = [&](int64_t b, int64_t i) { return in[4][(t * blocks + b) * 5 + i]; };
    for (int64_t b = 0; b < blocks; ++b) {
      exponentials += number(b, 1) * std::exp(number(b, 0));
      sum += number(b, 2);
      if (number(b, 0) > number(best, 0)) best = b;
    }
    const double lse = std::log(exponentials), weight = in[3][t];
    const auto target = static_cast<int64_t>(in[2][t]);
    const bool is_here = target >= logits.begin && target < logits.begin + logits.columns;
    const double log_p = is_here ? logits.of(in, t, target - logits.begin) - lse : 0;
    if (!out[3].absent) out[3][t] = log_p;
    if (weight == 0) continue;
    for (int64_t j = 0; j < logits.columns; ++j) {
      const double soft = logits.begin + j == target ? on : off;
      const double g =
          weight * logits.scale * ((1 + 2 * z * lse) * std::exp(logits.of(in, t, j) - lse) - soft);
      for (int64_t c = 0; c < logits.width; ++c) {
        if (!out[4].absent) out[4][t * logits.width + c] += g * in[1][logits.at(c, j)];
        if (!out[5].absent) out[5][logits.at(c, j)] += g * in[0][t * logits.width + c];
      }
    }
    if (!is_here) continue;
    out[0][0] +=
        weight * (-(on - off) * log_p - off * (sum - all * lse) - constant + z * lse * lse);
    out[1][0] += weight * z * lse * lse;
    out[2][0] += static_cast<int64_t>(number(best, 4)) == target ? 1 : 0;
  }
}

struct Setting {
  std::string name;
  int64_t tokens, width, columns, blocks, block;
  Attrs attrs{};
  bool has_log_probability = true, has_gradients = true;
};

void add_losses(std::vector<OpCase>& cases, const Setting& s, bool transposed) {
  const int64_t all = s.columns * s.blocks;
  std::mt19937_64 random(5);
  std::normal_distribution<double> draw;
  // Whole numbers, so that logits are the same in bfloat16, and some of them equal.
  const auto number = [&] { return std::round(draw(random)); };
  std::vector<double> x, targets, weights, statistics;
  std::vector<std::vector<double>> of_blocks(static_cast<size_t>(s.blocks));
  for (int64_t i = 0; i < s.tokens * s.width; ++i) x.push_back(number());
  for (auto& w : of_blocks)
    for (int64_t i = 0; i < s.width * s.columns; ++i) w.push_back(number());
  for (int64_t t = 0; t < s.tokens; ++t) {
    // Every fourth has no weight, and no token for a target; the others' are anywhere.
    weights.push_back(t % 4 == 3 ? 0 : 0.5 + static_cast<double>(t % 3));
    targets.push_back(t % 4 == 3 ? -7 : static_cast<double>((t * 37 + 5) % all));
  }
  const auto w_of = [&](int64_t block) {
    Operand w = values(transposed ? Shape{s.columns, s.width} : Shape{s.width, s.columns},
                       of_blocks[static_cast<size_t>(block)]);
    w.origin = transposed ? Shape{block * s.columns, 0} : Shape{0, block * s.columns};
    w.global = transposed ? Shape{all, s.width} : Shape{s.width, all};
    return w;
  };
  const Operand of_x = values({s.tokens, s.width}, x),
                of_targets = values({s.tokens}, targets, DType::i32);
  const auto oracle = [transposed](const Arrays& in, Arrays& out, const Attrs& attrs) {
    statistics_oracle(in, out, attrs, transposed);
  };
  statistics.resize(static_cast<size_t>(s.tokens * s.blocks * 5));
  for (int64_t b = 0; b < s.blocks; ++b) {
    const Operand w = w_of(b);
    Arrays in{{{s.tokens, s.width}, x, false, {0, 0}, {s.tokens, s.width}},
              {w.shape, of_blocks[static_cast<size_t>(b)], false, w.origin, w.global},
              {{s.tokens}, targets, false, {0}, {s.tokens}}};
    Arrays out{
        {{s.tokens, 1, 5}, std::vector<double>(static_cast<size_t>(s.tokens * 5)), false, {}, {}}};
    oracle(in, out, s.attrs);
    for (int64_t t = 0; t < s.tokens; ++t)
      std::copy_n(out[0].values.begin() + 5 * t, 5, statistics.begin() + (t * s.blocks + b) * 5);
  }
  const std::string op = transposed ? "cross_entropy_t" : "cross_entropy";
  const Operand w = w_of(s.block);
  cases.push_back(
      {.name = op + "_statistics/" + s.name,
       .kernel = transposed ? cross_entropy_t_statistics_cpu : cross_entropy_statistics_cpu,
       .inputs = {of_x, w, of_targets},
       .outputs = {result({s.tokens, 1, 5})},
       .attrs = s.attrs,
       .oracle = oracle});
  Result dw = result(w.shape);
  dw.origin = w.origin, dw.global = w.global;
  cases.push_back({.name = op + "_apply/" + s.name,
                   .kernel = transposed ? cross_entropy_t_apply_cpu : cross_entropy_apply_cpu,
                   .inputs = {of_x, w, of_targets, values({s.tokens}, weights),
                              values({s.tokens, s.blocks, 5}, statistics)},
                   .outputs = {result({}), result({}), result({}),
                               s.has_log_probability ? result({s.tokens}) : no_result(),
                               s.has_gradients ? result({s.tokens, s.width}) : no_result(),
                               s.has_gradients ? dw : no_result()},
                   .attrs = s.attrs,
                   .oracle = [transposed](const Arrays& in, Arrays& out, const Attrs& attrs) {
                     loss_oracle(in, out, attrs, transposed);
                   }});
}

}  // namespace

std::vector<OpCase> phases_cases() {
  std::vector<OpCase> cases;
  add_norms(cases, 5, 7, 1e-6);
  add_norms(cases, 1, 1, 1e-6);
  add_norms(cases, 0, 4, 1e-6);
  add_norms(cases, 70, 136, 1e-3);
  add_norms(cases, 9, 2056, 1e-6);  // a thread has several units
  const Attrs both{{"label_smoothing", 0.1}, {"z_loss", 0.02}, {"logit_scale", 0.5}};
  for (const bool transposed : {false, true})
    for (const Setting& s : std::vector<Setting>{
             {.name = "first", .tokens = 9, .width = 5, .columns = 11, .blocks = 2, .block = 0},
             {.name = "last",
             .tokens = 9,
             .width = 5,
             .columns = 11,
             .blocks = 3,
             .block = 2,
             .attrs = both},
             {.name = "narrow", .tokens = 6, .width = 4, .columns = 1, .blocks = 4, .block = 1},
             {.name = "wide",
             .tokens = 3,
             .width = 6,
             .columns = 4500,
             .blocks = 2,
             .block = 1,
             .attrs = both},
             {.name = "chunks",
             .tokens = 530,
             .width = 3,
             .columns = 16,
             .blocks = 2,
             .block = 1,
             .attrs = both},
             {.name = "loss_alone",
             .tokens = 8,
             .width = 4,
             .columns = 70,
             .blocks = 2,
             .block = 1,
             .attrs = both,
             .has_log_probability = false,
             .has_gradients = false}})
      add_losses(cases, s, transposed);
  return cases;
}

}  // namespace quintet::testing
