#include "apps/inspect/comparison.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/inspect/tensor_values.h"
#include "checkpoint/arrays/file_tensor.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

/// Of the numbers of one tensor.
struct Difference {
  std::string name;
  double largest = 0;   // |a - b|; infinite where one is NaN and the other is not
  double relative = 0;  // to the largest |a|
};

struct Comparison {
  std::vector<std::string> missing, extra;
  std::vector<std::string> shapes, dtypes;  // names
  std::vector<Difference> differences;      // the largest first
  int64_t equal = 0;
};

Difference difference_of(const CheckpointReader& a, const CheckpointReader& b,
                         const std::string& name) {
  Difference found{name};
  double scale = 0;
  std::vector<double> values;
  for (const TensorRegion& block : blocks_of(a, name)) {
    values.clear();
    for_values(read_block(a, block), [&](double value) {
      values.push_back(value);
      if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
    });
    size_t i = 0;
    for_values(read_block(b, block), [&](double value) {
      const double other = values[i++];
      if (value == other || (std::isnan(value) && std::isnan(other))) return;
      const double difference = std::abs(value - other);
      found.largest =
          std::max(found.largest,
                   std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference);
    });
  }
  found.relative = scale > 0 ? found.largest / scale : found.largest;
  return found;
}

Comparison compare(const CheckpointReader& a, const CheckpointReader& b) {
  Comparison result;
  for (const auto& [name, tensor] : a.tensors()) {
    const auto twin = b.tensors().find(name);
    if (twin == b.tensors().end()) {
      result.missing.push_back(name);
      continue;
    }
    if (tensor.dtype != twin->second.dtype) result.dtypes.push_back(name);
    if (tensor.shape != twin->second.shape) {
      result.shapes.push_back(name);
      continue;
    }
    const Difference difference = difference_of(a, b, name);
    if (difference.largest > 0)
      result.differences.push_back(difference);
    else
      ++result.equal;
  }
  for (const auto& [name, tensor] : b.tensors())
    if (!a.tensors().contains(name)) result.extra.push_back(name);
  std::stable_sort(result.differences.begin(), result.differences.end(),
                   [](const Difference& x, const Difference& y) { return x.largest > y.largest; });
  return result;
}

void print_json(const CheckpointReader& a, const CheckpointReader& b, const Comparison& found) {
  nlohmann::ordered_json json = {{"first", a.folder().string()},
                                 {"second", b.folder().string()},
                                 {"missing", found.missing},
                                 {"extra", found.extra}};
  json["shapes"] = json["dtypes"] = json["differences"] = nlohmann::ordered_json::object();
  for (const std::string& name : found.shapes)
    append_member(json["shapes"], name, {a.tensors().at(name).shape, b.tensors().at(name).shape});
  for (const std::string& name : found.dtypes)
    append_member(json["dtypes"], name,
                  {name_of(a.tensors().at(name).dtype), name_of(b.tensors().at(name).dtype)});
  for (const Difference& difference : found.differences)
    append_member(json["differences"], difference.name,
                  {{"largest", json_number(difference.largest)},
                   {"relative", json_number(difference.relative)}});
  json["equal"] = found.equal;
  fmt::print("{}\n", json.dump());
}

void print_text(const CheckpointReader& a, const CheckpointReader& b, const Comparison& found) {
  fmt::print("first        {}\nsecond       {}\n", a.folder().string(), b.folder().string());
  for (const auto& [title, names] :
       {std::pair("in the first alone", &found.missing), {"in the second alone", &found.extra}}) {
    if (!names->empty()) fmt::print("\n{}\n", title);
    for (const std::string& name : *names) fmt::print("  {}\n", name);
  }
  if (!found.shapes.empty()) fmt::print("\nof another shape\n");
  for (const std::string& name : found.shapes)
    fmt::print("  {}  {}  {}\n", name, shape_text(a.tensors().at(name).shape),
               shape_text(b.tensors().at(name).shape));
  if (!found.dtypes.empty()) fmt::print("\nof another dtype\n");
  for (const std::string& name : found.dtypes)
    fmt::print("  {}  {}  {}\n", name, name_of(a.tensors().at(name).dtype),
               name_of(b.tensors().at(name).dtype));
  size_t width = 6;
  for (const Difference& difference : found.differences)
    width = std::max(width, difference.name.size());
  if (!found.differences.empty())
    fmt::print("\n{:<{}}  {:>13} {:>13}\n", "tensor", width, "largest", "to largest");
  for (const Difference& difference : found.differences)
    fmt::print("{:<{}}  {:13.6g} {:13.6g}\n", difference.name, width, difference.largest,
               difference.relative);
  fmt::print("\n{} tensors have the same numbers, {} have others, {} differ in name or shape\n",
             found.equal, found.differences.size(),
             found.missing.size() + found.extra.size() + found.shapes.size());
}

}  // namespace

int compare_checkpoints(const std::string& first, const std::string& second,
                        const ResultFormat& format) {
  const auto a = open_for_inspection(first), b = open_for_inspection(second);
  const Comparison found = compare(*a, *b);
  if (format.is_json())
    print_json(*a, *b, found);
  else
    print_text(*a, *b, found);
  return 0;
}

}  // namespace quintet
