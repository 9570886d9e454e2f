#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/moe/routing.h"

namespace quintet {
namespace {

using cpu::Routing;

// What is known of one token before slots are given.
struct Token {
  int64_t place;  // in x; -1: added padding
  bool padding;   // its probabilities do not count
};

// Sums over a group's tokens, brought together in the order of groups.
struct Totals {
  double auxiliary = 0, z_loss = 0;
  double served_tokens = 0, served = 0, gates = 0, counted = 0;
};

// All groups of a block. Arrays over tokens are numbered as in Routing.
class Block {
 public:
  Block(const Routing& routing, const float* x, const float* logits, Views out)
      : r_(routing),
        x_(x),
        logits_(logits),
        gates_(out[0].data<float>()),
        rows_(out[4].data<int32_t>()),
        experts_(out[7].data<int32_t>()),
        positions_(out[8].data<int32_t>()),
        packed_(static_cast<size_t>(r_.local_groups() * r_.experts)),
        load_(packed_.size()),
        totals_(static_cast<size_t>(r_.local_groups())) {}

  void run() {
    cpu::parallel_for(r_.local_groups(), 1, [this](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) Group(*this, g).run();
    });
  }

  // Packed rows: those of an expert together, in them those of a group.
  void pack(Views out) const {
    auto* choices = out[5].data<int32_t>();
    auto* offsets = out[6].data<int32_t>();
    std::fill_n(choices, out[5].elements(), -1);
    std::vector<int32_t> first(packed_.size());
    int32_t next = 0;
    for (int64_t e = 0; e < r_.experts; ++e) {
      offsets[e] = next;
      for (int64_t g = 0; g < r_.local_groups(); ++g) {
        const auto at = static_cast<size_t>(g * r_.experts + e);
        first[at] = next;
        next += packed_[at];
      }
    }
    offsets[r_.experts] = next;
    if (next > out[5].elements())
      throw Bug(fmt::format("route: {} packed rows, room for {}", next, out[5].elements()));
    for (int64_t b = 1; b < out[6].size(0); ++b)
      std::copy_n(offsets, r_.experts + 1, offsets + b * (r_.experts + 1));
    // So far rows_ count within their expert and group.
    for (int64_t number = 0; number < r_.tokens(); ++number) {
      const int64_t place = r_.place(number);
      for (int64_t j = 0; place >= 0 && j < r_.choices; ++j) {
        const int64_t choice = place * r_.choices + j;
        if (rows_[choice] < 0) continue;
        rows_[choice] +=
            first[static_cast<size_t>(number / r_.group_size * r_.experts + experts_[choice])];
        choices[rows_[choice]] = static_cast<int32_t>(choice);
      }
    }
  }

  void sums(Views out) const {
    Totals sum;
    for (const Totals& t : totals_) {
      sum.auxiliary += t.auxiliary, sum.z_loss += t.z_loss, sum.gates += t.gates;
      sum.served_tokens += t.served_tokens, sum.served += t.served, sum.counted += t.counted;
    }
    *out[2].data<float>() = static_cast<float>(sum.auxiliary);
    *out[3].data<float>() = static_cast<float>(sum.z_loss / r_.all_tokens());
    const auto slots = static_cast<double>(r_.local_groups() * r_.experts * r_.capacity);
    const double counts[] = {sum.served_tokens, sum.served, sum.gates, sum.counted, slots};
    std::transform(counts, counts + 5, out[9].data<float>(),
                   [](double v) { return static_cast<float>(v); });
    auto* load = out[10].data<float>();
    std::fill_n(load, r_.experts, 0.0F);
    for (size_t i = 0; i < load_.size(); ++i)
      load[i % static_cast<size_t>(r_.experts)] += static_cast<float>(load_[i]);
  }

 private:
  // The tokens of one group get their slots.
  class Group {
   public:
    Group(Block& all, int64_t number)
        : all_(all),
          r_(all.r_),
          first_(number * r_.group_size),
          totals_(all.totals_[static_cast<size_t>(number)]),
          packed_(all.packed_.data() + number * r_.experts),
          load_(all.load_.data() + number * r_.experts),
          tokens_(static_cast<size_t>(r_.group_size)),
          probabilities_(static_cast<size_t>(r_.group_size * r_.experts)),
          expert_(static_cast<size_t>(r_.group_size * r_.choices), -1),
          position_(expert_.size(), -1) {}

    void run() {
      weigh();
      if (r_.router == Router::experts_choose) {
        experts_choose();
      } else {
        tokens_choose();
        balance();
      }
      write();
    }

   private:
    float* probabilities(int64_t token) { return probabilities_.data() + token * r_.experts; }

    void weigh() {
      const std::vector<float> zeros(static_cast<size_t>(r_.experts));
      for (int64_t t = 0; t < r_.group_size; ++t) {
        const int64_t place = r_.place(first_ + t);
        const bool padding =
            r_.ignore_padding && (place < 0 || cpu::is_zero(all_.x_ + place * r_.embed, r_.embed));
        tokens_[static_cast<size_t>(t)] = {place, padding};
        const auto log_sum = static_cast<double>(
            cpu::softmax(place < 0 ? zeros.data() : all_.logits_ + place * r_.experts,
                         probabilities(t), r_.experts));
        totals_.z_loss += log_sum * log_sum;
        if (padding) std::fill_n(probabilities(t), r_.experts, 0.0F);
        if (!padding) ++totals_.counted;
      }
      // flaxformer counts a token once for each of its copies here.
      if (r_.router == Router::scatter && r_.ignore_padding)
        totals_.counted *= static_cast<double>(r_.choices);
    }

    // Each token's largest probabilities, first choices of all before second choices.
    void tokens_choose() {
      for (int64_t t = 0; t < r_.group_size; ++t) choose(t);
      std::vector<int64_t> order(tokens_.size());
      std::iota(order.begin(), order.end(), 0);
      if (r_.batch_priority)
        std::stable_sort(order.begin(), order.end(),
                         [this](int64_t a, int64_t b) { return best(a) > best(b); });
      std::vector<int32_t> next(static_cast<size_t>(r_.experts));
      for (int64_t j = 0; j < r_.choices; ++j)
        for (const int64_t t : order)
          if (const int32_t e = expert_[at(t, j)]; e >= 0)
            place(t, j, next[static_cast<size_t>(e)]++);
    }

    void choose(int64_t t) {
      if (tokens_[static_cast<size_t>(t)].padding && r_.router == Router::tokens_choose) return;
      const float* p = probabilities(t);
      const auto taken = [&](int64_t e, int64_t j) {
        for (int64_t before = 0; before < j; ++before)
          if (expert_[at(t, before)] == e) return true;
        return false;
      };
      for (int64_t j = 0; j < r_.choices; ++j) {
        int64_t best = -1;
        for (int64_t e = 0; e < r_.experts; ++e)
          if (!taken(e, j) && (best < 0 || p[e] > p[best])) best = e;
        expert_[at(t, j)] = static_cast<int32_t>(best);
      }
    }
    float best(int64_t t) {
      const int32_t e = expert_[at(t, 0)];
      return e < 0 ? 0 : probabilities(t)[e];
    }

    void experts_choose() {
      std::vector<int64_t> order(tokens_.size());
      for (int64_t e = 0; e < r_.experts; ++e) {
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + r_.capacity, order.end(),
                          [&](int64_t a, int64_t b) {
                            const float pa = probabilities(a)[e], pb = probabilities(b)[e];
                            return pa != pb ? pa > pb : a < b;
                          });
        for (int64_t t = 0; t < r_.group_size; ++t) expert_[at(t, e)] = static_cast<int32_t>(e);
        for (int64_t c = 0; c < r_.capacity; ++c)
          place(order[static_cast<size_t>(c)], e, static_cast<int32_t>(c));
      }
    }

    // Gives choice j of token t a place in its expert's buffer, if there is room.
    void place(int64_t t, int64_t j, int32_t position) {
      position_[at(t, j)] = position;
      if (position >= r_.capacity) return;
      const Token& token = tokens_[static_cast<size_t>(t)];
      const int32_t e = expert_[at(t, j)];
      ++load_[e];
      ++totals_.served;
      totals_.gates += static_cast<double>(probabilities(t)[e]);
      if (token.place < 0 || token.padding) return;
      const int64_t choice = token.place * r_.choices + j;
      all_.gates_[choice] = probabilities(t)[e];
      all_.rows_[choice] = packed_[e]++;
    }

    void balance() {
      std::vector<double> chosen(static_cast<size_t>(r_.experts)), probability(chosen.size());
      for (const int32_t e : expert_)
        if (e >= 0) ++chosen[static_cast<size_t>(e)];
      for (size_t i = 0; i < probabilities_.size(); ++i)
        probability[i % probability.size()] += static_cast<double>(probabilities_[i]);
      totals_.auxiliary =
          std::inner_product(chosen.begin(), chosen.end(), probability.begin(), 0.0);
      const auto size = static_cast<double>(r_.group_size);
      totals_.auxiliary *=
          static_cast<double>(r_.experts) / (size * size * static_cast<double>(r_.groups));
    }

    void write() {
      for (int64_t t = 0; t < r_.group_size; ++t) {
        bool served = false;
        for (int64_t j = 0; j < r_.choices; ++j) {
          const int32_t position = position_[at(t, j)];
          served |= position >= 0 && position < r_.capacity;
        }
        totals_.served_tokens += served ? 1 : 0;
        const int64_t place = tokens_[static_cast<size_t>(t)].place;
        if (place < 0) continue;
        std::copy_n(expert_.data() + at(t, 0), r_.choices, all_.experts_ + place * r_.choices);
        std::copy_n(position_.data() + at(t, 0), r_.choices, all_.positions_ + place * r_.choices);
      }
    }

    size_t at(int64_t t, int64_t j) const { return static_cast<size_t>(t * r_.choices + j); }

    Block& all_;
    const Routing& r_;
    int64_t first_;
    Totals& totals_;
    int32_t *packed_, *load_;
    std::vector<Token> tokens_;
    std::vector<float> probabilities_;
    std::vector<int32_t> expert_, position_;
  };

  const Routing& r_;
  const float *x_, *logits_;
  float* gates_;
  int32_t *rows_, *experts_, *positions_;
  std::vector<int32_t> packed_, load_;  // [group, expert]: rows to pack, choices served
  std::vector<Totals> totals_;
};

}  // namespace

void route_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const Routing routing("route", in[0], in[1], attrs);
  if (routing.real_tokens() * routing.choices >= int64_t{1} << 31)
    fail(ExitCode::kUsage, "route: {} tokens with {} choices are too many for one rank",
         routing.real_tokens(), routing.choices);
  float* logits = out[1].absent() ? cpu::scratch(cpu::Scratch::kGateProducts,
                                                 routing.real_tokens() * routing.experts)
                                  : out[1].data<float>();
  const bool has_bias = in.size() > 2 && !in[2].absent();
  for (int64_t t = 0; has_bias && t < routing.real_tokens(); ++t)
    std::copy_n(cpu::f32(in[2], "route", "bias"), routing.experts, logits + t * routing.experts);
  cpu::gemm({.m = routing.real_tokens(),
             .n = routing.experts,
             .k = routing.embed,
             .beta = has_bias ? 1.0F : 0.0F},
            cpu::jittered(in[0], attrs), routing.embed, cpu::f32(in[1], "route", "w"),
            routing.experts, logits, routing.experts);
  std::fill_n(out[0].data<float>(), out[0].elements(), 0.0F);
  std::fill_n(out[4].data<int32_t>(), out[4].elements(), -1);
  Block block(routing, cpu::f32(in[0], "route", "x"), logits, out);
  block.run();
  block.pack(out);
  block.sums(out);
}

}  // namespace quintet
