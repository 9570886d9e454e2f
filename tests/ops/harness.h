#pragma once
// Cases of the ops: one list that the oracle test, the gradient check and bench/ops_bench walk.
//
// A file tests/ops/<folder>_cases.cpp defines `std::vector<OpCase> <folder>_cases()`; CMake makes
// one test of each such file (ops_<folder>_test) and one benchmark of all. Per case the driver
//   - runs the kernel twice on NaN-filled outputs with guard bytes around every buffer, at an even
//     and an odd address: equal bytes, guards and inputs untouched;
//   - compares with the oracle, the shortest plain loop in double;
//   - compares the gradient kernels with central differences of the oracle;
//   - has results that may be added to what is there added, in its place and apart.
//
//   OpCase c{.name = "rms_norm/3x17", .kernel = rms_norm_cpu,
//            .inputs = {normal({3, 17}), normal({17})}, .outputs = {result({3, 17})},
//            .attrs = {{"eps", 1e-6}}, .oracle = rms_norm_oracle};
//   c.grads = {{.kernel = rms_norm_grad_cpu, .operands = {input(0), input(1), cotangent(0)},
//               .results = {0, 1}}};            // it returns the gradients of inputs 0 and 1

#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace quintet::testing {

using Shape = std::vector<int64_t>;

/// An array of the oracle: row-major doubles (integers exactly), or absent.
struct Array {
  Shape shape;
  std::vector<double> values;
  bool absent = false;
  Shape origin, global;  // as in View; whole arrays have origin 0 and global = shape

  int64_t size(int axis) const {
    return shape[static_cast<size_t>(axis < 0 ? axis + static_cast<int>(shape.size()) : axis)];
  }
  /// Product of all sizes but the last; the last.
  int64_t rows() const;
  int64_t depth() const { return shape.empty() ? 1 : shape.back(); }
  double& operator[](int64_t i) { return values[static_cast<size_t>(i)]; }
  double operator[](int64_t i) const { return values[static_cast<size_t>(i)]; }
};
using Arrays = std::vector<Array>;

/// How to make an input. Values are rounded to dtype before kernel and oracle see them.
struct Operand {
  Shape shape;
  DType dtype = DType::f32;
  std::function<double(int64_t flat_index, std::mt19937_64&)> value{};
  bool absent = false;
  Shape origin{}, global{};  // empty: a whole array
};
Operand normal(Shape shape, double deviation = 1.0);
/// int32, uniform in [low, high).
Operand integers(Shape shape, int64_t low, int64_t high);
/// The given values, row-major; their number must be the product of shape.
Operand values(Shape shape, std::vector<double> given, DType dtype = DType::f32);
Operand no_operand();

struct Result {
  Shape shape;
  DType dtype = DType::f32;
  bool absent = false;
  Shape origin{}, global{};
};
Result result(Shape shape, DType dtype = DType::f32);
Result no_result();

/// Fills `out`, whose shapes (and absences) are those of the case's outputs, values all NaN.
using Oracle = std::function<void(const Arrays& in, Arrays& out, const Attrs& attrs)>;

/// What an operand of a gradient kernel is.
struct Source {
  enum class Kind { kInput, kOutput, kCotangent, kNone } kind;
  int index = 0;
};
inline Source input(int i) { return {Source::Kind::kInput, i}; }    // input i of the op
inline Source output(int i) { return {Source::Kind::kOutput, i}; }  // what the kernel returned
inline Source cotangent(int i) {
  return {Source::Kind::kCotangent, i};
}  // d objective / d output i
inline Source none() { return {Source::Kind::kNone}; }

/// One call of a gradient kernel, with the attributes of the case. The objective is the sum of
/// cotangent x output over every output that `grads` names as a cotangent.
struct GradCall {
  Kernel kernel;
  std::vector<Source> operands;
  std::vector<int> results;  // result r is the gradient of input results[r]; -1: an absent result
  std::vector<Shape> others{};  // results after these, which are no gradients
  std::vector<int> adds{};      // results that may be added to what is there: `&` in ops.def
};

/// For ops whose forward pass returns gradients itself: output `gradient` is the gradient of the
/// scalar output `of` for input `wrt`.
struct OwnGradient {
  int gradient, of, wrt;
};

struct OpCase {
  std::string name;  // "<op>/<what is special>"
  Kernel kernel = nullptr;
  std::vector<Operand> inputs{};
  std::vector<Result> outputs{};
  Attrs attrs{};
  Oracle oracle{};
  /// |got - want| <= tolerance * max(1, largest |want| of that output): float32 sums in another
  /// order.
  double tolerance = 2e-5;
  std::vector<GradCall> grads{};
  std::vector<OwnGradient> own_gradients{};
  std::vector<int> adds{};       // results that may be added to what is there: `&` in ops.def
  double grad_tolerance = 5e-5;  // likewise
  uint64_t seed = 1;
  // For the benchmark.
  bool only_bench = false;  // too large for the oracle
  double flops = 0;         // floating-point operations of one call, 0: not of interest
  double bytes = 0;         // read and written by one call
};

/// GoogleTest shows a failed case by its name.
inline void PrintTo(const OpCase& c, std::ostream* out) { *out << c.name; }

/// Defined by a generated file: the cases of all linked case files.
std::vector<OpCase> all_cases();

}  // namespace quintet::testing
