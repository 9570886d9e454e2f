#include "tests/ops/harness.h"

#include <utility>

namespace quintet::testing {

int64_t Array::rows() const {
  int64_t n = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
  return n;
}

Operand normal(Shape shape, double deviation) {
  return {.shape = std::move(shape), .value = [deviation](int64_t, std::mt19937_64& random) {
            return std::normal_distribution<double>(0, deviation)(random);
          }};
}

Operand integers(Shape shape, int64_t low, int64_t high) {
  return {
      .shape = std::move(shape),
      .dtype = DType::i32,
      .value = [low, high](int64_t, std::mt19937_64& random) {
        return static_cast<double>(std::uniform_int_distribution<int64_t>(low, high - 1)(random));
      }};
}

Operand values(Shape shape, std::vector<double> given, DType dtype) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  QT_ASSERT(static_cast<size_t>(n) == given.size());
  return {.shape = std::move(shape),
          .dtype = dtype,
          .value = [given = std::move(given)](int64_t i, std::mt19937_64&) {
            return given[static_cast<size_t>(i)];
          }};
}

Operand no_operand() {
  Operand o;
  o.absent = true;
  return o;
}

Result result(Shape shape, DType dtype) { return {.shape = std::move(shape), .dtype = dtype}; }

Result no_result() {
  Result r;
  r.absent = true;
  return r;
}

}  // namespace quintet::testing
