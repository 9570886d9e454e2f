#include "runtime/base/dtype.h"

#include "runtime/base/check.h"

namespace quintet {
namespace {
struct Entry {
  DType dtype;
  int64_t size;
  bool floating;
  std::string_view name;
};
constexpr Entry kEntries[] = {
    {DType::f32, 4, true, "float32"}, {DType::bf16, 2, true, "bfloat16"},
    {DType::f16, 2, true, "float16"}, {DType::f64, 8, true, "float64"},
    {DType::i32, 4, false, "int32"},  {DType::i64, 8, false, "int64"},
    {DType::u8, 1, false, "uint8"},   {DType::i8, 1, false, "int8"},
    {DType::u32, 4, false, "uint32"}, {DType::boolean, 1, false, "bool"},
};
const Entry& entry(DType dtype) { return kEntries[static_cast<size_t>(dtype)]; }
}  // namespace

int64_t size_of(DType dtype) { return entry(dtype).size; }
std::string_view name_of(DType dtype) { return entry(dtype).name; }
bool is_floating(DType dtype) { return entry(dtype).floating; }

DType dtype_from_name(std::string_view name) {
  std::string known;
  for (const Entry& e : kEntries) {
    if (e.name == name) return e.dtype;
    known += known.empty() ? "" : ", ";
    known += e.name;
  }
  fail(ExitCode::kUsage, "unknown dtype '{}'; known: {}", name, known);
}

}  // namespace quintet
