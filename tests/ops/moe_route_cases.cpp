// Routing: each router, with and without padding, priorities and room, and its gradient.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernels/moe/route.h"
#include "kernels/random/random.h"
#include "tests/ops/harness.h"

namespace quintet::testing {
namespace {

// The rules of route.h as loops in double over the tokens of the whole, padding added.
class RouteOracle {
 public:
  RouteOracle(const Arrays& in, Arrays& out, const Attrs& attrs)
      : x_(in[0]), w_(in[1]), bias_(in[2]), out_(out), attrs_(attrs) {
    const auto padded = [&](const char* name, int axis) {
      const auto given = attrs.get_or<int64_t>(name, 0);
      return given == 0 ? x_.size(axis) : given;
    };
    batch_ = padded("padded_batch", 0), length_ = padded("padded_length", 1);
    k_ = attrs.get<int64_t>("k"), experts_ = w_.size(1);
    size_ = attrs.get<int64_t>("group_size");
    router_ = static_cast<Router>(attrs.get<int64_t>("router"));
    capacity_ = attrs.get<int64_t>("capacity");
    if (capacity_ == 0) capacity_ = size_;
    if (router_ == Router::experts_choose) capacity_ = std::min(capacity_, size_);
  }

  void run() {
    for (Array& a : out_) std::fill(a.values.begin(), a.values.end(), 0.0);
    out_[9][4] = static_cast<double>(batch_ * length_ / size_ * experts_ * capacity_);
    for (const size_t i : {4, 5, 7, 8})
      std::fill(out_[i].values.begin(), out_[i].values.end(), -1.0);
    std::vector<std::vector<int64_t>> by_expert(static_cast<size_t>(experts_));  // choices
    for (int64_t g = 0; g < batch_ * length_ / size_; ++g) group(g, by_expert);
    int64_t row = 0;
    for (int64_t e = 0; e < experts_; ++e) {
      for (int64_t b = 0; b < x_.size(0); ++b)
        out_[6][b * (experts_ + 1) + e] = static_cast<double>(row);
      for (const int64_t choice : by_expert[static_cast<size_t>(e)]) {
        out_[5][row] = static_cast<double>(choice);
        out_[4][choice] = static_cast<double>(row++);
      }
    }
    for (int64_t b = 0; b < x_.size(0); ++b)
      out_[6][b * (experts_ + 1) + experts_] = static_cast<double>(row);
  }

 private:
  struct Token {
    int64_t place = -1;  // in x
    bool padding = false;
    std::vector<double> p;
    std::vector<int64_t> experts, positions;
  };

  Token token(int64_t number) {
    Token t;
    const int64_t b = number / length_, l = number % length_;
    if (b < x_.size(0) && l < x_.size(1)) t.place = b * x_.size(1) + l;
    std::vector<double> logits(static_cast<size_t>(experts_));
    for (int64_t e = 0; !bias_.absent && e < experts_; ++e)
      logits[static_cast<size_t>(e)] = bias_[e];
    double size = 0, largest = -1e300, sum = 0;
    for (int64_t i = 0; t.place >= 0 && i < x_.depth(); ++i) {
      const double v = x_[t.place * x_.depth() + i];
      size += std::abs(v);
      for (int64_t e = 0; e < experts_; ++e)
        logits[static_cast<size_t>(e)] +=
            v * noise(t.place * x_.depth() + i) * w_[i * experts_ + e];
    }
    for (const double l2 : logits) largest = std::max(largest, l2);
    for (const double l2 : logits) sum += std::exp(l2 - largest);
    t.padding = attrs_.get_or<bool>("ignore_padding", false) && size == 0;
    for (int64_t e = 0; e < experts_; ++e) {
      const double logit = logits[static_cast<size_t>(e)];
      if (t.place >= 0 && !out_[1].absent) out_[1][t.place * experts_ + e] = logit;
      t.p.push_back(t.padding ? 0 : std::exp(logit - largest) / sum);
    }
    out_[3][0] += std::pow(largest + std::log(sum), 2) / (groups() * static_cast<double>(size_));
    const bool copies = router_ == Router::scatter && attrs_.get_or<bool>("ignore_padding", false);
    if (!t.padding) out_[9][3] += copies ? static_cast<double>(k_) : 1;
    t.experts.assign(static_cast<size_t>(k_), -1);
    t.positions.assign(static_cast<size_t>(k_), -1);
    return t;
  }

  void group(int64_t g, std::vector<std::vector<int64_t>>& by_expert) {
    std::vector<Token> tokens;
    for (int64_t i = 0; i < size_; ++i) tokens.push_back(token(g * size_ + i));
    router_ == Router::experts_choose ? experts_choose(tokens) : tokens_choose(tokens);
    std::vector<std::vector<std::pair<int64_t, int64_t>>> packed(static_cast<size_t>(experts_));
    for (const Token& t : tokens) {
      bool served = false;
      for (int64_t j = 0; j < k_; ++j) {
        const int64_t e = t.experts[static_cast<size_t>(j)],
                      at = t.positions[static_cast<size_t>(j)];
        const int64_t choice = t.place * k_ + j;
        if (t.place >= 0) {
          out_[7][choice] = static_cast<double>(e);
          out_[8][choice] = static_cast<double>(at);
        }
        if (at < 0 || at >= capacity_) continue;
        served = true;
        out_[9][1] += 1;
        out_[9][2] += t.p[static_cast<size_t>(e)];
        out_[10][e] += 1;
        if (t.place < 0 || t.padding) continue;
        out_[0][choice] = t.p[static_cast<size_t>(e)];
        packed[static_cast<size_t>(e)].emplace_back(at, choice);
      }
      out_[9][0] += served ? 1 : 0;
    }
    for (size_t e = 0; e < packed.size(); ++e) {
      std::sort(packed[e].begin(), packed[e].end());
      for (const auto& [at, choice] : packed[e]) by_expert[e].push_back(choice);
    }
  }

  void tokens_choose(std::vector<Token>& tokens) {
    for (Token& t : tokens) {
      if (t.padding && router_ == Router::tokens_choose) continue;
      std::vector<int64_t> order(t.p.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return t.p[static_cast<size_t>(a)] > t.p[static_cast<size_t>(b)];
      });
      std::copy_n(order.begin(), k_, t.experts.begin());
    }
    std::vector<Token*> order;
    for (Token& t : tokens) order.push_back(&t);
    const auto gate = [](const Token* t) {
      return t->experts[0] < 0 ? 0 : t->p[static_cast<size_t>(t->experts[0])];
    };
    if (attrs_.get_or<bool>("batch_priority", false))
      std::stable_sort(order.begin(), order.end(),
                       [&](const Token* a, const Token* b) { return gate(a) > gate(b); });
    std::vector<int64_t> next(static_cast<size_t>(experts_));
    for (size_t j = 0; j < static_cast<size_t>(k_); ++j)
      for (Token* t : order)
        if (t->experts[j] >= 0) t->positions[j] = next[static_cast<size_t>(t->experts[j])]++;
    for (size_t e = 0; e < next.size(); ++e) {
      double probability = 0;
      for (const Token& t : tokens) probability += t.p[e];
      out_[2][0] += static_cast<double>(experts_) / groups() * static_cast<double>(next[e]) /
                    static_cast<double>(size_) * probability / static_cast<double>(size_);
    }
  }

  void experts_choose(std::vector<Token>& tokens) {
    for (size_t e = 0; e < static_cast<size_t>(experts_); ++e) {
      std::vector<Token*> order;
      for (Token& t : tokens) order.push_back(&t);
      std::stable_sort(order.begin(), order.end(),
                       [&](const Token* a, const Token* b) { return a->p[e] > b->p[e]; });
      for (Token* t : order) t->experts[e] = static_cast<int64_t>(e);
      for (int64_t c = 0; c < capacity_; ++c) order[static_cast<size_t>(c)]->positions[e] = c;
    }
  }

  double groups() const { return static_cast<double>(attrs_.get<int64_t>("groups")); }
  double noise(int64_t element) const {
    const double jitter = attrs_.get_or<double>("jitter", 0.0);
    if (jitter == 0) return 1;
    const Key key{static_cast<uint32_t>(attrs_.get<int64_t>("key0")),
                  static_cast<uint32_t>(attrs_.get<int64_t>("key1"))};
    float drawn = 0;
    fill_uniform(key, static_cast<uint64_t>(x_.origin[0] * x_.size(1) * x_.size(2) + element),
                 {&drawn, 1}, static_cast<float>(1 - jitter), static_cast<float>(1 + jitter));
    return static_cast<double>(drawn);
  }

  const Array &x_, &w_, &bias_;
  Arrays& out_;
  const Attrs& attrs_;
  int64_t batch_, length_, k_, experts_, size_, capacity_;
  Router router_;
};

struct Settings {
  Router router = Router::tokens_choose;
  int64_t batch = 3, length = 8, embed = 5, experts = 4, k = 1;
  int64_t group_size = 12, capacity = 4;
  bool priority = false, ignore = false;
  bool ties = false;       // as ignore: zero tokens, at which routing has no derivative
  bool one_sided = false;  // the first expert is everybody's favourite
  int64_t padded_batch = 0, padded_length = 0;
  double jitter = 0;
  bool bias = false;
  int64_t origin = 0, all_rows = 0;  // of the batch
};

OpCase route_case(const std::string& name, const Settings& s) {
  OpCase c{.name = "route/" + name, .kernel = route_cpu};
  const bool by_experts = s.router == Router::experts_choose;
  const int64_t k = by_experts ? s.experts : s.k;
  const int64_t tokens = std::max(s.batch, s.padded_batch) * std::max(s.length, s.padded_length);
  const int64_t groups = tokens / s.group_size;
  const int64_t slots = groups * s.experts * std::min(s.capacity, s.group_size);
  const int64_t n = by_experts ? (slots + s.batch - 1) / s.batch : s.length * k;
  Operand x = normal({s.batch, s.length, s.embed});
  x.origin = {s.origin, 0, 0};
  x.global = {std::max(s.all_rows, s.batch), s.length, s.embed};
  const bool has_zeros = s.ignore || s.ties;  // the last two tokens of the first row
  x.value = [=, draw = x.value](int64_t i, std::mt19937_64& random) {
    const double v = s.one_sided ? 0.5 + std::abs(draw(i, random)) : draw(i, random);
    const int64_t token = i / s.embed;
    return has_zeros && token < s.length && token >= s.length - 2 ? 0 : v;
  };
  Operand w = normal({s.embed, s.experts}, 0.5);
  w.value = [=, draw = w.value](int64_t i, std::mt19937_64& random) {
    const double v = draw(i, random);
    return s.one_sided && i % s.experts == 0 ? 2 + std::abs(v) : v;
  };
  c.inputs = {x, w, s.bias ? normal({s.experts}) : no_operand()};
  const auto with = [&](Result r) {
    r.origin.assign(r.shape.size(), 0);
    r.global = r.shape;
    return r;
  };
  c.outputs = {with(result({s.batch, s.length, k})),
               with(result({s.batch, s.length, s.experts})),
               result({}),
               result({}),
               with(result({s.batch, s.length, k}, DType::i32)),
               with(result({s.batch, n}, DType::i32)),
               with(result({s.batch, s.experts + 1}, DType::i32)),
               with(result({s.batch, s.length, k}, DType::i32)),
               with(result({s.batch, s.length, k}, DType::i32)),
               result({5}),
               result({s.experts})};
  c.attrs = {{"router", static_cast<int64_t>(s.router)},
             {"k", k},
             {"capacity", s.capacity},
             {"group_size", s.group_size},
             {"groups", groups * (s.all_rows > 0 ? s.all_rows / s.batch : 1)},
             {"batch_priority", s.priority},
             {"ignore_padding", s.ignore},
             {"padded_batch", s.padded_batch},
             {"padded_length", s.padded_length},
             {"jitter", s.jitter},
             {"key0", int64_t{3}},
             {"key1", int64_t{4}}};
  c.oracle = [](const Arrays& in, Arrays& out, const Attrs& attrs) {
    RouteOracle(in, out, attrs).run();
  };
  if (has_zeros) return c;
  c.grads = {{route_grad_cpu,
              {input(0), input(1), output(1), output(7), output(0), cotangent(0), cotangent(2),
               cotangent(3)},
              {0, 1, s.bias ? 2 : -1},
              {},
              {1, 2}}};
  return c;
}

}  // namespace

std::vector<OpCase> moe_route_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const std::string& name, const Settings& s) {
    cases.push_back(route_case(name, s));
  };
  using enum Router;
  for (const bool ignore : {false, true}) {
    const std::string pad = ignore ? "/padding_ignored" : "";
    for (const int64_t k : {1, 2})
      for (const bool priority : {false, true}) {
        const std::string what = fmt::format("top{}{}{}", k, priority ? "/priority" : "", pad);
        add("tokens_choose/" + what, {.k = k, .priority = priority, .ignore = ignore});
        add("scatter/" + what, {.router = scatter, .k = k, .priority = priority, .ignore = ignore});
      }
    add("experts_choose" + pad, {.router = experts_choose, .ignore = ignore});
    add("padded_batch" + pad, {.group_size = 8, .ignore = ignore, .padded_batch = 4});
    add("padded_length" + pad, {.k = 2, .group_size = 10, .ignore = ignore, .padded_length = 10});
    add("experts_choose/padded" + pad,
        {.router = experts_choose, .group_size = 15, .ignore = ignore, .padded_length = 10});
  }
  add("ties", {.k = 2, .priority = true, .ties = true});
  add("experts_choose/ties", {.router = experts_choose, .ties = true});
  for (const bool ignore : {false, true})
    add(fmt::format("bias{}", ignore ? "/padding_ignored" : ""),
        {.k = 2, .ignore = ignore, .bias = true});
  add("bias/experts_choose", {.router = experts_choose, .bias = true});
  add("bias/jitter", {.k = 2, .jitter = 0.3, .bias = true});
  add("bias/many_experts", {.batch = 4,
                            .length = 32,
                            .embed = 7,
                            .experts = 37,
                            .k = 3,
                            .group_size = 64,
                            .bias = true});
  add("no_limit", {.k = 2, .capacity = 0});
  add("room_for_one", {.k = 2, .capacity = 1});
  add("experts_choose/more_room_than_tokens",
      {.router = experts_choose, .group_size = 6, .capacity = 9});
  add("all_experts", {.k = 4, .capacity = 5});
  add("one_expert", {.experts = 1, .capacity = 6});
  add("one_token", {.batch = 1, .length = 1, .group_size = 1});
  add("many_experts",
      {.batch = 4, .length = 32, .embed = 7, .experts = 37, .k = 3, .group_size = 64});
  // More tokens in a group than a kernel takes at a time, and not a multiple.
  add("large_groups", {.batch = 2, .length = 75, .k = 2, .group_size = 50, .capacity = 11});
  add("one_large_group",
      {.batch = 6, .length = 50, .experts = 5, .k = 4, .group_size = 300, .capacity = 170});
  add("large_groups/padded", {.batch = 2,
                              .length = 45,
                              .k = 2,
                              .group_size = 110,
                              .capacity = 30,
                              .ignore = true,
                              .padded_length = 55});
  add("large_groups/padded/scatter", {.router = scatter,
                                      .batch = 2,
                                      .length = 45,
                                      .k = 2,
                                      .group_size = 110,
                                      .capacity = 30,
                                      .padded_length = 55});
  add("large_groups/priority",
      {.batch = 2, .length = 75, .k = 2, .group_size = 50, .capacity = 11, .priority = true});
  add("many_groups", {.batch = 5, .length = 16, .k = 2, .group_size = 4, .capacity = 2});
  add("more_experts_than_tokens",
      {.batch = 1, .length = 20, .experts = 260, .k = 2, .group_size = 20});
  add("all_to_one_expert",
      {.batch = 3, .length = 40, .group_size = 60, .capacity = 37, .one_sided = true});
  // The last one served is in the middle of a tile, behind padding that is served too.
  add("all_to_one_expert/padding_served", {.router = scatter,
                                           .batch = 2,
                                           .length = 40,
                                           .group_size = 40,
                                           .capacity = 39,
                                           .ignore = true,
                                           .one_sided = true});
  add("jitter", {.k = 2, .jitter = 0.3});
  add("jitter/part_of_a_batch", {.k = 2, .jitter = 0.3, .origin = 6, .all_rows = 9});
  return cases;
}

}  // namespace quintet::testing
