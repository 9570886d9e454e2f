#include "runtime/op/op_attributes.h"

#include <algorithm>
#include <array>
#include <optional>

namespace quintet {
namespace {

constexpr std::array<std::string_view, 3> kTypes{"bool", "int", "double"};

std::string_view trimmed(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

const Attribute* find(const std::vector<Attribute>& declared, std::string_view name) {
  const auto found = std::find_if(declared.begin(), declared.end(),
                                  [&](const Attribute& a) { return a.name == name; });
  return found == declared.end() ? nullptr : &*found;
}

std::optional<Attribute> parse_attribute(std::string_view text) {
  Attribute attribute;
  attribute.optional = text.ends_with('?');
  if (attribute.optional) text.remove_suffix(1);
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  attribute.name = trimmed(text.substr(0, colon));
  const auto type = std::find(kTypes.begin(), kTypes.end(), trimmed(text.substr(colon + 1)));
  if (attribute.name.empty() || type == kTypes.end()) return std::nullopt;
  attribute.type = static_cast<Attribute::Type>(type - kTypes.begin());
  return attribute;
}

}  // namespace

std::vector<Attribute> parse_attributes(std::string_view op, const Rule& rule,
                                        std::string_view text) {
  std::vector<Attribute> declared;
  for (const RuleSize& size : rule.sizes) declared.push_back({.name = size.letter});
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const auto attribute = parse_attribute(trimmed(text.substr(0, comma)));
    if (!attribute || find(declared, attribute->name) != nullptr)
      throw Bug(fmt::format("attributes of op {}: '{}' is not a new `name: type` with a type of {}",
                            op, text.substr(0, comma), fmt::join(kTypes, ", ")));
    declared.push_back(*attribute);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return declared;
}

void check_attributes(std::string_view op, const std::vector<Attribute>& declared,
                      const Attrs& attrs) {
  for (const auto& [name, value] : attrs.items()) {
    const Attribute* attribute = find(declared, name);
    if (attribute == nullptr)
      throw Bug(fmt::format("{}: attribute '{}' is not in its record in ops.def", op, name));
    const auto type = static_cast<Attribute::Type>(value.index());
    const bool widens =
        type == Attribute::Type::kInt && attribute->type == Attribute::Type::kDouble;
    if (type != attribute->type && !widens)
      throw Bug(fmt::format("{}: attribute '{}' is {}, its record in ops.def says {}", op, name,
                            kTypes.at(value.index()),
                            kTypes.at(static_cast<size_t>(attribute->type))));
  }
  for (const Attribute& attribute : declared)
    if (!attribute.optional && !attrs.has(attribute.name))
      throw Bug(fmt::format("{}: attribute '{}' is missing", op, attribute.name));
}

Attrs select_attributes(const std::vector<Attribute>& declared, const Attrs& attrs) {
  Attrs selected;
  for (const auto& [name, value] : attrs.items())
    if (find(declared, name) != nullptr) selected.set(name, value);
  return selected;
}

Attrs select_sizes(const Rule& rule, const Attrs& attrs) {
  Attrs sizes;
  for (const RuleSize& size : rule.sizes) sizes.set(size.letter, attrs.get<int64_t>(size.letter));
  return sizes;
}

}  // namespace quintet
