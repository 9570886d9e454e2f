#include "apps/export/onnx/graph.h"

#include "apps/process/version.h"
#include "runtime/base/check.h"

namespace quintet::onnx {
namespace {

constexpr int64_t kIrVersion = 8;  // of the same time as the operators

int64_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kFloat;
    case DType::f16:
      return kFloat16;
    case DType::bf16:
      return kBfloat16;
    default:
      fail(ExitCode::kUsage, "ONNX: {} is no type of weights here", name_of(dtype));
  }
}

Message value_info(const std::string& name, Type type, const std::optional<Graph::Axes>& axes) {
  Message tensor, shape;
  tensor.number(1, type);
  for (const auto& axis : axes.value_or(Graph::Axes())) {
    Message dim;
    if (const auto* size = std::get_if<int64_t>(&axis)) dim.number(1, *size);
    if (const auto* free = std::get_if<std::string>(&axis)) dim.text(2, *free);
    shape.message(1, dim);
  }
  if (axes) tensor.message(2, shape);
  Message of, info;
  of.message(1, tensor);
  info.text(1, name);
  info.message(2, of);
  return info;
}

Message attribute_of(const Attribute& attribute) {
  Message message;
  message.text(1, attribute.name);
  if (const auto* real = std::get_if<float>(&attribute.value)) {
    message.real(2, *real);
    message.number(20, 1);
  } else if (const auto* number = std::get_if<int64_t>(&attribute.value)) {
    message.number(3, *number);
    message.number(20, 2);
  } else if (const auto* graph = std::get_if<const Graph*>(&attribute.value)) {
    message.message(6, (*graph)->message(attribute.name));
    message.number(20, 5);
  } else {
    for (const int64_t number_of : std::get<std::vector<int64_t>>(attribute.value))
      message.number(8, number_of);
    message.number(20, 7);
  }
  return message;
}

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

}  // namespace

std::string Graph::op(const std::string& type, const std::vector<std::string>& inputs,
                      const std::vector<Attribute>& attributes) {
  return ops(type, inputs, 1, attributes).front();
}

std::vector<std::string> Graph::ops(const std::string& type, const std::vector<std::string>& inputs,
                                    size_t results, const std::vector<Attribute>& attributes) {
  Message node;
  std::vector<std::string> names;
  for (const std::string& input : inputs) node.text(1, input);
  for (size_t i = 0; i < results; ++i) {
    names.push_back(fmt::format("{}{}_{}", prefix_, type, made_++));
    node.text(2, names.back());
  }
  node.text(3, names.front());
  node.text(4, type);
  for (const Attribute& attribute : attributes) node.message(5, attribute_of(attribute));
  body_.message(1, node);
  return names;
}

std::string Graph::constant(const std::string& name, int64_t type, std::span<const int64_t> sizes,
                            std::string_view bytes) {
  Message tensor;
  for (const int64_t size : sizes) tensor.number(1, size);
  tensor.number(2, type);
  tensor.text(8, name);
  tensor.text(9, bytes);
  body_.message(5, tensor);
  return name;
}

std::string Graph::tensor(const std::string& name, const HostArray& array) {
  return constant(name, type_of(array.dtype), array.shape,
                  {reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size()});
}

std::string Graph::integers(std::span<const int64_t> values) {
  const auto size = static_cast<int64_t>(values.size());
  return constant(fmt::format("{}constant_{}", prefix_, made_++), kInt64, std::span(&size, 1),
                  {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

std::string Graph::integer(int64_t value, Type type, const std::string& name) {
  const std::string own = name.empty() ? fmt::format("{}constant_{}", prefix_, made_++) : name;
  return type == kInt32 ? constant(own, type, {}, bytes_of(static_cast<int32_t>(value)))
                        : constant(own, type, {}, bytes_of(value));
}

std::string Graph::real(float value) {
  return constant(fmt::format("{}constant_{}", prefix_, made_++), kFloat, {}, bytes_of(value));
}

void Graph::input(const std::string& name, Type type, const std::optional<Axes>& axes) {
  body_.message(11, value_info(name, type, axes));
}

void Graph::output(const std::string& name, const std::string& value, Type type,
                   const std::optional<Axes>& axes) {
  Message node;
  node.text(1, value);
  node.text(2, name);
  node.text(4, "Identity");
  body_.message(1, node);
  body_.message(12, value_info(name, type, axes));
}

Message Graph::message(const std::string& name) const {
  Message graph = body_;
  graph.text(2, name);
  return graph;
}

Message model_of(const Graph& graph,
                 const std::vector<std::pair<std::string, std::string>>& about) {
  Message model, opset;
  opset.text(1, "");
  opset.number(2, kOpset);
  model.number(1, kIrVersion);
  model.text(2, "quintet");
  model.text(3, kVersion);
  model.message(8, opset);
  for (const auto& [key, value] : about) {
    Message entry;
    entry.text(1, key);
    entry.text(2, value);
    model.message(14, entry);
  }
  model.message(7, graph.message("greedy"));
  return model;
}

}  // namespace quintet::onnx
