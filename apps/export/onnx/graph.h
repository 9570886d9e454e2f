#pragma once
// A graph of ONNX as it is being written: operators by name, whose results are named in the order they are made.
//
//   Graph graph;
//   const std::string y = graph.op("MatMul", {x, graph.tensor("w", w)});
//   graph.output("y", y, kFloat);
//   file << model_head(graph, about) << graph.body();

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "data/vocabularies/proto_wire.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/host_array.h"

namespace quintet::onnx {

using data::ProtoWriter;  // fields by their numbers in onnx.proto, ONNX's public schema

/// The operators' set, of 2021: what runs it need not be new.
inline constexpr int64_t kOpset = 15;

enum Type : int64_t {
  kFloat = 1,
  kInt8 = 3,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kBfloat16 = 16
};

class Graph;
struct Attribute {
  std::string name;
  std::variant<int64_t, float, std::vector<int64_t>, const Graph*> value;
};

/// A file beside the graph's with the bytes of its larger constants, written as they come: ONNX's external data.
class ExternalData {
 public:
  /// `location`: what the file is going to be called, in the graph's folder.
  ExternalData(File file, std::string location)
      : file_(std::move(file)), location_(std::move(location)) {}

  static constexpr int64_t kFewestBytes = 1024;  // of a constant there
  /// Gives what a TensorProto has in place of the bytes: its location, offset and length.
  std::vector<std::pair<std::string, std::string>> write(std::string_view bytes);
  /// Gives the file's bytes, which are on disk then.
  int64_t finish();

 private:
  File file_;
  std::string location_;
  int64_t size_ = 0;
};

class Graph {
 public:
  /// Names of its own begin with `prefix`: a graph and those in it see each other's. Without `external` all constants
  /// are in the message.
  explicit Graph(std::string prefix = "", ExternalData* external = nullptr)
      : prefix_(std::move(prefix)), external_(external) {}

  /// Gives the name of the operator's first result.
  std::string op(const std::string& type, const std::vector<std::string>& inputs,
                 const std::vector<Attribute>& attributes = {});
  /// The same of one with several.
  std::vector<std::string> ops(const std::string& type, const std::vector<std::string>& inputs,
                               size_t results, const std::vector<Attribute>& attributes = {});
  /// A constant.
  std::string tensor(const std::string& name, const HostArray& array);
  std::string integers(std::span<const int64_t> values);  // int64 [values]
  std::string integers(std::initializer_list<int64_t> values) {
    return integers(std::span(values.begin(), values.size()));
  }
  /// Without axes. Of the name of an input: what that is where it is left out.
  std::string integer(int64_t value, Type type = kInt64, const std::string& name = "");
  std::string real(float value);  // likewise
  std::string real64(double value);
  std::string reals(std::span<const float> values);

  /// Axes: sizes, or names of what is free; none: of any rank.
  using Axes = std::vector<std::variant<int64_t, std::string>>;
  void input(const std::string& name, Type type, const std::optional<Axes>& axes = {});
  /// Names `value` so.
  void output(const std::string& name, const std::string& value, Type type,
              const std::optional<Axes>& axes = {});

  /// GraphProto, but for its name.
  const std::string& body() const { return body_.str(); }
  /// For constants of so many bytes.
  void reserve(int64_t bytes) { body_.reserve(static_cast<size_t>(bytes)); }

 private:
  std::string constant(const std::string& name, int64_t type, std::span<const int64_t> sizes,
                       std::string_view bytes);
  std::string prefix_;
  ExternalData* external_;
  int64_t made_ = 0;
  ProtoWriter body_;
};

/// What comes before the graph's body in a ModelProto: no copy of its constants is made. `about`: metadata, for people.
std::string model_head(const Graph& graph,
                       const std::vector<std::pair<std::string, std::string>>& about);

}  // namespace quintet::onnx
