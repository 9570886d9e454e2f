#include "kernels/moe/routing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/random/random.h"

namespace quintet::cpu {
namespace {

int64_t padded(std::string_view name, int64_t size, const Attrs& attrs) {
  const auto given = attrs.get_or<int64_t>(name, 0);
  return given == 0 ? size : given;
}

}  // namespace

Routing::Routing(const char* name, const View& x, const View& w, const Attrs& attrs)
    : op(name),
      router(static_cast<Router>(attrs.get<int64_t>("router"))),
      rows(x.size(0)),
      length(x.size(1)),
      embed(x.size(2)),
      experts(w.size(1)),
      padded_rows(padded("padded_batch", rows, attrs)),
      padded_length(padded("padded_length", length, attrs)),
      choices(attrs.get<int64_t>("k")),
      capacity(attrs.get<int64_t>("capacity")),
      group_size(attrs.get<int64_t>("group_size")),
      groups(attrs.get<int64_t>("groups")),
      batch_priority(attrs.get_or<bool>("batch_priority", false)),
      ignore_padding(attrs.get_or<bool>("ignore_padding", false)) {
  expect_shape(x.rank == 3 && w.rank == 2 && w.size(0) == embed, op, "ble, ex");
  QT_CHECK(choices >= 1 && choices <= experts,
           "{}: {} of {} experts chosen; expected at least one and at most all", op, choices,
           experts);
  if (router == Router::experts_choose && choices != experts)
    throw Bug(fmt::format("{}: experts choose, but k is {} of {}", op, choices, experts));
  if (group_size < 1 || tokens() % group_size != 0 || padded_rows < rows || padded_length < length)
    throw Bug(fmt::format("{}: {} tokens are not whole groups of {}", op, tokens(), group_size));
  if (capacity == 0) capacity = group_size;
  if (router == Router::experts_choose) capacity = std::min(capacity, group_size);
}

void times_jitter(const View& x, const Attrs& attrs, float* values) {
  const double jitter = attrs.get_or<double>("jitter", 0.0);
  if (jitter == 0) return;
  const Key key{static_cast<uint32_t>(attrs.get<int64_t>("key0")),
                static_cast<uint32_t>(attrs.get<int64_t>("key1"))};
  // All axes but the first are whole, so the block is one run of the global array.
  const auto begin = static_cast<uint64_t>(x.origin[0] * x.size(1) * x.size(2));
  const auto n = static_cast<size_t>(x.elements());
  std::vector<float> noise(n);
  fill_uniform(key, begin, noise, static_cast<float>(1 - jitter), static_cast<float>(1 + jitter));
  for (size_t i = 0; i < n; ++i) values[i] *= noise[i];
}

const float* jittered(const View& x, const Attrs& attrs) {
  const float* values = f32(x, "route", "x");
  if (attrs.get_or<double>("jitter", 0.0) == 0) return values;
  float* copy = scratch(Scratch::kProducts, x.elements());
  std::copy_n(values, x.elements(), copy);
  times_jitter(x, attrs, copy);
  return copy;
}

bool is_zero(const float* x, int64_t embed) {
  return std::all_of(x, x + embed, [](float v) { return v == 0; });
}

float softmax(const float* logits, float* probabilities, int64_t experts) {
  const float largest = *std::max_element(logits, logits + experts);
  float sum = 0;
  for (int64_t i = 0; i < experts; ++i) sum += probabilities[i] = std::exp(logits[i] - largest);
  for (int64_t i = 0; i < experts; ++i) probabilities[i] /= sum;
  return largest + std::log(sum);
}

}  // namespace quintet::cpu
