#include "checkpoint/arrays/numpy_type.h"

#include <utility>

#include "runtime/base/check.h"

namespace quintet {
namespace {

constexpr std::pair<DType, std::string_view> kTypes[] = {
    {DType::f32, "<f4"}, {DType::bf16, "bfloat16"}, {DType::f16, "<f2"}, {DType::f64, "<f8"},
    {DType::i32, "<i4"}, {DType::i64, "<i8"},       {DType::u32, "<u4"}, {DType::u8, "|u1"},
    {DType::i8, "|i1"},  {DType::boolean, "|b1"}};

}  // namespace

std::string_view numpy_type(DType dtype) {
  for (const auto& [known, name] : kTypes)
    if (known == dtype) return name;
  throw Bug("numpy_type: dtype without a name");
}

std::optional<DType> dtype_of_numpy_type(std::string_view name) {
  for (const auto& [dtype, known] : kTypes)
    if (known == name) return dtype;
  return std::nullopt;
}

}  // namespace quintet
