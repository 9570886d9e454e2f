#include "apps/inspect/one_tensor.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "apps/inspect/tensor_values.h"
#include "checkpoint/arrays/half.h"
#include "checkpoint/arrays/numpy_type.h"
#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/formats/json.h"
#include "runtime/base/nearest.h"

namespace quintet {
namespace {

constexpr int64_t kPrintedWhole = 1000;  // elements
constexpr int64_t kEdge = 3;             // of an axis of a larger one, at either end

/// Version 1.0 of numpy.lib.format: magic, length and a Python dict, padded to 64 bytes.
std::string npy_header(const HostArray& array) {
  std::string shape;
  for (const int64_t size : array.shape) shape += fmt::format("{}, ", size);
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   numpy_type(array.dtype), shape);
  constexpr size_t kBefore = 10, kAligned = 64;
  header.append(kAligned - 1 - (kBefore + header.size()) % kAligned, ' ');
  header += '\n';
  std::string start("\x93NUMPY\x01\x00", 8);
  start += static_cast<char>(header.size() & 0xff);
  start += static_cast<char>(header.size() >> 8);
  return start + header;
}

void write_npy(const HostArray& array, const std::string& file) {
  const std::string header = npy_header(array);
  const std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(header)),
                                                          std::span<const std::byte>(array.bytes)};
  atomic_write_file(file, pieces);
}

/// As NumPy prints: nested brackets, "..." for the middle of each axis of a large tensor.
std::string values_text(const std::vector<double>& values, const std::vector<int64_t>& shape,
                        size_t axis, size_t first, int64_t stride) {
  if (axis == shape.size()) return fmt::format("{:.6g}", values[first]);
  const bool whole = std::ssize(values) <= kPrintedWhole || shape[axis] <= 2 * kEdge;
  const int64_t inner = shape[axis] == 0 ? 0 : stride / shape[axis];
  const bool last = axis + 1 == shape.size();
  const std::string between = last ? " " : "\n" + std::string(axis + 1, ' ');
  std::string text;
  for (int64_t i = 0; i < shape[axis]; ++i) {
    if (i > 0) text += between;
    if (!whole && i == kEdge) {
      text += "...";
      i = shape[axis] - kEdge - 1;
      continue;
    }
    text += values_text(values, shape, axis + 1, first + static_cast<size_t>(i * inner), inner);
  }
  return "[" + text + "]";
}

}  // namespace

int show_tensor(const std::string& path, const std::string& name, const ResultFormat& format,
                const std::string& output) {
  const auto reader = open_for_inspection(path);
  if (!reader->tensors().contains(name)) {
    std::vector<std::string> names;
    for (const auto& [known, tensor] : reader->tensors()) names.push_back(known);
    fail(ExitCode::kUsage, "--tensor={}: {} has no such tensor{}; 'quintet inspect {}' lists them",
         name, reader->folder().string(), did_you_mean(name, names), reader->folder().string());
  }
  const StoredTensor& tensor = reader->tensors().at(name);
  HostArray array =
      read_block(*reader, {name, std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape});
  if (!output.empty()) {
    if (array.dtype == DType::bf16) array = as_float32(std::move(array));
    write_npy(array, output);
    return 0;
  }
  std::vector<double> values;
  for_values(array, [&](double value) { values.push_back(value); });
  if (format.is_json()) {
    nlohmann::ordered_json json = {{"tensor", name},
                                   {"dtype", name_of(tensor.dtype)},
                                   {"shape", tensor.shape},
                                   {"values", nlohmann::ordered_json::array()}};
    for (const double value : values) json["values"].push_back(json_number(value));
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("{}  {}  [{}]\n{}\n", name, name_of(tensor.dtype), fmt::join(tensor.shape, ", "),
             values_text(values, tensor.shape, 0, 0, std::ssize(values)));
  return 0;
}

}  // namespace quintet
