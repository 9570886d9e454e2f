#pragma once
// The expressions of jestimator.amos_helper (eval_str_value): Python's numbers, tuples, indices and slices, + - * / // % **,
// sqrt, exp, log, log2, log10, floor, ceil, abs, fabs and pow of numbers, prod, sum, mean, max and min of tuples, and SHAPE,
// the shape of a parameter.
//
//   std::get<double>(evaluate("sqrt(1 / prod(SHAPE[:-1]))", {512, 2048}, where))
//   std::get<std::vector<int64_t>>(evaluate("(1,) + SHAPE[1:]", {512, 2048}, where))   // {1, 2048}

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace quintet {

/// A number or a tuple of whole numbers.
using Evaluated = std::variant<double, std::vector<int64_t>>;
/// Throws a usage error that begins with `where` and says at which character the text is not understood.
Evaluated evaluate_shape_expression(const std::string& text, const std::vector<int64_t>& shape,
                                    const std::string& where);

}  // namespace quintet
