#include <algorithm>
#include <cmath>

#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/rotary/rotary.h"

namespace quintet {

Rotation::Rotation(int64_t head_dim, double max_timescale)
    : frequencies_(static_cast<size_t>(head_dim / 2)) {
  for (size_t j = 0; j < frequencies_.size(); ++j)
    frequencies_[j] =
        1 / static_cast<float>(std::pow(
                max_timescale, 2 * static_cast<double>(j) / static_cast<double>(head_dim)));
}

void Rotation::at(int64_t position, float* turn) const {
  const size_t half = frequencies_.size();
  for (size_t j = 0; j < half; ++j) {
    const float angle = static_cast<float>(position) * frequencies_[j];
    turn[j] = std::cos(angle);
    turn[half + j] = std::sin(angle);
  }
}

void Rotation::apply(const float* turn, const float* x, float* y, int64_t heads) const {
  const size_t half = frequencies_.size();
  for (int64_t h = 0; h < heads; ++h, x += 2 * half, y += 2 * half)
    for (size_t j = 0; j < half; ++j) {
      const float a = x[j], b = x[half + j], cosine = turn[j], sine = turn[half + j];
      y[j] = a * cosine - b * sine;
      y[half + j] = b * cosine + a * sine;
    }
}

RotateShape::RotateShape(const View& x, const Attrs& attrs)
    : rows(x.rows()), heads(attrs.get<int64_t>("h")) {
  const int tokens = x.rank - 2;
  head_dim = x.global[x.rank - 1] / heads;
  turned = attrs.get_or<int64_t>("turned", heads) - x.origin[x.rank - 1] / head_dim;
  heads = x.depth() / head_dim;
  turned = std::clamp<int64_t>(turned, 0, heads);
  first = x.origin[tokens];
  length = x.size(tokens);
}

namespace {

void rotate_rows(Views in, const View& to, const Attrs& attrs, int64_t sign) {
  const View& from = in[0];
  cpu::expect_shape(from.rank >= 2 && to.elements() == from.elements(), "rotate",
                    "...(hd) -> ...(hd)");
  const float* x = cpu::f32(from, "rotate", "x");
  float* y = cpu::f32(to, "rotate", "y");
  const int32_t* positions = in[1].absent() ? nullptr : in[1].data<const int32_t>();
  const RotateShape s(from, attrs);
  const int64_t depth = from.depth(), end_of_turned = s.turned * s.head_dim;
  const Rotation rotation(s.head_dim, attrs.get<double>("max_timescale"));
  cpu::parallel_for(s.rows, cpu::row_grain(depth), [&](int64_t begin, int64_t end) {
    std::vector<float> turn(static_cast<size_t>(s.head_dim));
    for (int64_t r = begin; r < end; ++r) {
      const int64_t position = positions == nullptr ? s.first + r % s.length : positions[r];
      rotation.at(sign * position, turn.data());
      rotation.apply(turn.data(), x + r * depth, y + r * depth, s.turned);
      std::copy(x + r * depth + end_of_turned, x + (r + 1) * depth, y + r * depth + end_of_turned);
    }
  });
}

}  // namespace

void rotate_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  rotate_rows(in, out[0], attrs, 1);
}

void rotate_grad_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  rotate_rows(in, out[0], attrs, -1);
}

}  // namespace quintet
