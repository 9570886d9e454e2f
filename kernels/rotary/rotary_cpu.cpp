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

namespace {

void rotate_rows(const View& from, const View& to, const Attrs& attrs, int64_t sign) {
  cpu::expect_shape(from.rank == 3 && to.elements() == from.elements(), "rotate",
                    "bl(hd) -> bl(hd)");
  const float* x = cpu::f32(from, "rotate", "x");
  float* y = cpu::f32(to, "rotate", "y");
  const int64_t d = from.global[2] / attrs.get<int64_t>("h"), depth = from.depth();
  const Rotation rotation(d, attrs.get<double>("max_timescale"));
  cpu::parallel_for(from.rows(), cpu::row_grain(depth), [&](int64_t begin, int64_t end) {
    std::vector<float> turn(static_cast<size_t>(d));
    for (int64_t r = begin; r < end; ++r) {
      rotation.at(sign * (from.origin[1] + r % from.size(1)), turn.data());
      rotation.apply(turn.data(), x + r * depth, y + r * depth, depth / d);
    }
  });
}

}  // namespace

void rotate_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  rotate_rows(in[0], out[0], attrs, 1);
}

void rotate_grad_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  rotate_rows(in[0], out[0], attrs, -1);
}

}  // namespace quintet
