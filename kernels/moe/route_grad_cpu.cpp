#include <vector>

#include "kernels/cpu/addend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/moe/routing.h"

namespace quintet {
namespace {

using cpu::Routing;

// How often each expert was chosen in each group: [group, expert].
std::vector<float> chosen(const Routing& r, const int32_t* experts) {
  std::vector<float> count(static_cast<size_t>(r.local_groups() * r.experts));
  for (int64_t number = 0; number < r.tokens(); ++number) {
    float* of_group = count.data() + number / r.group_size * r.experts;
    const int64_t place = r.place(number);
    if (place < 0 && r.ignore_padding && r.router == Router::tokens_choose) continue;
    for (int64_t j = 0; j < r.choices; ++j) {
      // Added padding ties everywhere and chooses the first experts.
      const int64_t e = place < 0 ? j : experts[place * r.choices + j];
      if (e >= 0) ++of_group[e];
    }
  }
  return count;
}

}  // namespace

void route_grad_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const char* op = "route_grad";
  const Routing r(op, in[0], in[1], attrs);
  const float *x = cpu::f32(in[0], op, "x"), *w = cpu::f32(in[1], op, "w");
  const float *logits = cpu::f32(in[2], op, "logits"), *gates = cpu::f32(in[4], op, "gates");
  const auto* experts = in[3].data<const int32_t>();
  const float* dgates = in[5].absent() ? nullptr : cpu::f32(in[5], op, "dgates");
  const auto scalar = [&](size_t i) { return in[i].absent() ? 0.0F : *in[i].data<const float>(); };
  const float dz = 2 * scalar(7) / static_cast<float>(r.all_tokens());
  const bool balances = r.router != Router::experts_choose && !in[6].absent();
  const float dauxiliary = scalar(6) * static_cast<float>(r.experts) /
                           (static_cast<float>(r.groups) * static_cast<float>(r.group_size) *
                            static_cast<float>(r.group_size));
  const std::vector<float> count = balances ? chosen(r, experts) : std::vector<float>();
  const bool has_bias = out.size() > 2 && !out[2].absent();
  float* dlogits = cpu::scratch(cpu::Scratch::kGrads, r.real_tokens() * r.experts);
  cpu::parallel_for(r.tokens(), cpu::row_grain(8 * r.experts), [&](int64_t begin, int64_t end) {
    std::vector<float> p(static_cast<size_t>(r.experts)), dp(p.size());
    for (int64_t number = begin; number < end; ++number) {
      const int64_t t = r.place(number);
      if (t < 0) continue;
      float* dlogit = dlogits + t * r.experts;
      const bool padding = r.ignore_padding && cpu::is_zero(x + t * r.embed, r.embed);
      if (padding && !has_bias) {
        std::fill_n(dlogit, r.experts, 0.0F);
        continue;
      }
      const float log_sum = cpu::softmax(logits + t * r.experts, p.data(), r.experts);
      if (padding) {  // of the bias's own logits the z-loss remains
        for (int64_t e = 0; e < r.experts; ++e)
          dlogit[e] = p[static_cast<size_t>(e)] * dz * log_sum;
        continue;
      }
      std::fill(dp.begin(), dp.end(), 0.0F);
      for (int64_t j = 0; dgates != nullptr && j < r.choices; ++j)
        if (const int64_t c = t * r.choices + j; gates[c] != 0)
          dp[static_cast<size_t>(experts[c])] += dgates[c];
      float mean = 0;
      for (int64_t e = 0; e < r.experts; ++e) {
        const auto i = static_cast<size_t>(e);
        if (balances)
          dp[i] += dauxiliary * count[static_cast<size_t>(number / r.group_size * r.experts + e)];
        mean += p[i] * dp[i];
      }
      for (int64_t e = 0; e < r.experts; ++e) {
        const auto i = static_cast<size_t>(e);
        dlogit[e] = p[i] * (dp[i] - mean + dz * log_sum);
      }
    }
  });
  float* dx = cpu::f32(out[0], op, "dx");
  cpu::gemm({.m = r.real_tokens(), .n = r.embed, .k = r.experts, .transpose_b = true}, dlogits,
            r.experts, w, r.experts, dx, r.embed);
  cpu::times_jitter(in[0], attrs, dx);
  cpu::gemm({.m = r.embed,
             .n = r.experts,
             .k = r.real_tokens(),
             .transpose_a = true,
             .beta = cpu::copy_addend(in, 8, out, 1)},
            cpu::jittered(in[0], attrs), r.embed, dlogits, r.experts, cpu::f32(out[1], op, "dw"),
            r.experts);
  if (!has_bias) return;
  float* dbias = cpu::f32(out[2], op, "dbias");
  if (cpu::copy_addend(in, 8, out, 2) == 0) std::fill_n(dbias, r.experts, 0.0F);
  for (int64_t t = 0; t < r.real_tokens(); ++t)
    for (int64_t e = 0; e < r.experts; ++e) dbias[e] += dlogits[t * r.experts + e];
}

}  // namespace quintet
