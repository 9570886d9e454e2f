#include "apps/export/onnx/graph.h"

#include "apps/process/version.h"
#include "runtime/base/check.h"

namespace quintet::onnx {
namespace {

constexpr int64_t kIrVersion = 8;  // of the same time as the operators
constexpr int64_t kPage = 4096;    // constants begin at one, so that they can be mapped

/// StringStringEntryProto.
ProtoWriter entry_of(const std::string& key, const std::string& value) {
  ProtoWriter entry;
  entry.bytes(1, key);
  entry.bytes(2, value);
  return entry;
}

int64_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kFloat;
    case DType::f16:
      return kFloat16;
    case DType::bf16:
      return kBfloat16;
    case DType::i8:
      return kInt8;
    default:
      fail(ExitCode::kUsage, "ONNX: {} is no type of weights here", name_of(dtype));
  }
}

ProtoWriter value_info(const std::string& name, Type type, const std::optional<Graph::Axes>& axes) {
  ProtoWriter tensor, shape;
  tensor.varint(1, type);
  for (const auto& axis : axes.value_or(Graph::Axes())) {
    ProtoWriter dim;
    if (const auto* size = std::get_if<int64_t>(&axis)) dim.varint(1, *size);
    if (const auto* free = std::get_if<std::string>(&axis)) dim.bytes(2, *free);
    shape.bytes(1, dim.str());
  }
  if (axes) tensor.bytes(2, shape.str());
  ProtoWriter of, info;
  of.bytes(1, tensor.str());
  info.bytes(1, name);
  info.bytes(2, of.str());
  return info;
}

ProtoWriter attribute_of(const Attribute& attribute) {
  ProtoWriter message;
  message.bytes(1, attribute.name);
  if (const auto* real = std::get_if<float>(&attribute.value)) {
    message.float32(2, *real);
    message.varint(20, 1);
  } else if (const auto* number = std::get_if<int64_t>(&attribute.value)) {
    message.varint(3, *number);
    message.varint(20, 2);
  } else if (const auto* graph = std::get_if<const Graph*>(&attribute.value)) {
    ProtoWriter name;
    name.bytes(2, attribute.name);
    message.bytes(6, (*graph)->body() + name.str());
    message.varint(20, 5);
  } else {
    for (const int64_t number_of : std::get<std::vector<int64_t>>(attribute.value))
      message.varint(8, number_of);
    message.varint(20, 7);
  }
  return message;
}

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> ExternalData::write(std::string_view bytes) {
  const int64_t offset = (size_ + kPage - 1) / kPage * kPage;
  file_.write_at(offset, std::as_bytes(std::span(bytes)));
  size_ = offset + std::ssize(bytes);
  return {{"location", location_},
          {"offset", std::to_string(offset)},
          {"length", std::to_string(bytes.size())}};
}

int64_t ExternalData::finish() {
  file_.sync();
  file_.close_checked();
  return size_;
}

std::string Graph::op(const std::string& type, const std::vector<std::string>& inputs,
                      const std::vector<Attribute>& attributes) {
  return ops(type, inputs, 1, attributes).front();
}

std::vector<std::string> Graph::ops(const std::string& type, const std::vector<std::string>& inputs,
                                    size_t results, const std::vector<Attribute>& attributes) {
  ProtoWriter node;
  std::vector<std::string> names;
  for (const std::string& input : inputs) node.bytes(1, input);
  for (size_t i = 0; i < results; ++i) {
    names.push_back(fmt::format("{}{}_{}", prefix_, type, made_++));
    node.bytes(2, names.back());
  }
  node.bytes(3, names.front());
  node.bytes(4, type);
  for (const Attribute& attribute : attributes) node.bytes(5, attribute_of(attribute).str());
  body_.bytes(1, node.str());
  return names;
}

std::string Graph::constant(const std::string& name, int64_t type, std::span<const int64_t> sizes,
                            std::string_view bytes) {
  ProtoWriter tensor;
  for (const int64_t size : sizes) tensor.varint(1, size);
  tensor.varint(2, type);
  tensor.bytes(8, name);
  if (external_ != nullptr && std::ssize(bytes) >= ExternalData::kFewestBytes) {
    for (const auto& [key, value] : external_->write(bytes))
      tensor.bytes(13, entry_of(key, value).str());
    tensor.varint(14, 1);  // EXTERNAL
    bytes = {};
  } else {
    tensor.begin(9, bytes.size());
  }
  body_.begin(5, tensor.str().size() + bytes.size());
  body_.append(tensor.str());
  body_.append(bytes);
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

std::string Graph::real64(double value) {
  return constant(fmt::format("{}constant_{}", prefix_, made_++), kDouble, {}, bytes_of(value));
}

std::string Graph::reals(std::span<const float> values) {
  const auto size = static_cast<int64_t>(values.size());
  return constant(fmt::format("{}constant_{}", prefix_, made_++), kFloat, std::span(&size, 1),
                  {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

void Graph::input(const std::string& name, Type type, const std::optional<Axes>& axes) {
  body_.bytes(11, value_info(name, type, axes).str());
}

void Graph::output(const std::string& name, const std::string& value, Type type,
                   const std::optional<Axes>& axes) {
  ProtoWriter node;
  node.bytes(1, value);
  node.bytes(2, name);
  node.bytes(4, "Identity");
  body_.bytes(1, node.str());
  body_.bytes(12, value_info(name, type, axes).str());
}

std::string model_head(const Graph& graph,
                       const std::vector<std::pair<std::string, std::string>>& about) {
  ProtoWriter model, opset;
  opset.bytes(1, "");
  opset.varint(2, kOpset);
  model.varint(1, kIrVersion);
  model.bytes(2, "quintet");
  model.bytes(3, kVersion);
  model.bytes(8, opset.str());
  for (const auto& [key, value] : about) model.bytes(14, entry_of(key, value).str());
  ProtoWriter name;
  name.bytes(2, "greedy");
  model.begin(7, name.str().size() + graph.body().size());
  return model.str() + name.str();
}

}  // namespace quintet::onnx
