#pragma once
// Python literals: the text of number, string and name tokens to values.
//
//   number_literal("0x1F", false) == Value(31)
//   string_literal({"r'\\d'", "\"x\""}) == Value("\\dx")
//
// Errors are LiteralError with a reason; the parser adds the place.

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "runtime/gin/syntax/value.h"

namespace quintet::gin {

struct LiteralError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// `text` is a number token. Integers outside int64 become BigInt.
Value number_literal(std::string_view text, bool negative);
/// True, False or None; other names are errors.
Value name_literal(std::string_view text);
/// String tokens with prefix and quotes, joined; all str or all bytes.
Value string_literal(std::span<const std::string_view> tokens);

}  // namespace quintet::gin
