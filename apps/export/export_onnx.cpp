#include "apps/export/export_onnx.h"

#include <set>

#include "apps/export/onnx/t5_graph.h"
#include "apps/model/checkpoint_parameters.h"
#include "apps/model/quantized_model.h"
#include "apps/model/trained_dataset.h"
#include "checkpoint/write/new_file.h"
#include "data/vocabularies/vocabulary.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

constexpr int64_t kMostBytes = (int64_t{1} << 31) - 1;  // of a message of Protocol Buffers

/// That of all parameters, if it is one that a graph has; else float32.
DType dtype_of(const CheckpointReader& from) {
  std::set<DType> found;
  for (const auto& [name, tensor] : from.tensors())
    if (name.starts_with(kParameterPrefix)) found.insert(tensor.dtype);
  const bool is_half = found == std::set{DType::bf16} || found == std::set{DType::f16};
  return is_half ? *found.begin() : DType::f32;
}

/// As a server of the model has it: TextModel.
onnx::GraphOptions options_of(const ExportSource& source, std::optional<DType> dtype,
                              std::optional<WeightType> weights) {
  onnx::GraphOptions options;
  if (weights)
    options.weights = *weights;
  else
    options.dtype = dtype ? *dtype : dtype_of(*source.from);
  if (const auto vocabulary = source.model->output_vocabulary.object_as<const data::Vocabulary>())
    options.eos_id = vocabulary->eos_id().value_or(1);
  if (const auto length = source.answer_length) options.max_decode_len = *length;
  // Of weights in a byte some are in two, and have scales.
  options.most_bytes =
      source.model->model->parameters().elements() * (weights ? 2 : size_of(options.dtype));
  return options;
}

int64_t write(const std::filesystem::path& path, const std::string& head, const std::string& body) {
  const int64_t bytes = std::ssize(head) + std::ssize(body);
  File out = File::create_new(path);
  out.reserve(bytes);
  out.write_at(0, std::as_bytes(std::span(head)));
  out.write_at(std::ssize(head), std::as_bytes(std::span(body)));
  out.sync();
  out.close_checked();
  return bytes;
}

}  // namespace

int64_t export_onnx(const ExportSource& source, std::optional<DType> dtype,
                    std::optional<WeightType> weights, bool external) {
  const BaseModel& model = *source.model->model;
  onnx::check_has_graph(model.spec());
  const auto quantization = quantization_of(source, dtype, weights);
  QT_CHECK(quantization != WeightType::fp8,
           "{}: holds weights in fp8, which the operators of an ONNX file here do not know; write "
           "a bundle, or name the run "
           "that it was made from",
           source.from->folder().string());
  const onnx::GraphOptions options = options_of(source, dtype, quantization);
  const std::filesystem::path data_path = source.output + ".data";
  NewFile file(source.output);
  std::optional<NewFile> data;
  std::optional<onnx::ExternalData> data_writer;
  if (external || options.most_bytes >= kMostBytes) {
    data.emplace(data_path);
    data_writer.emplace(File::create_new(data->prepared()), data_path.filename().string());
  }
  source.from->verify_before_reading();
  const bool is_stored = quantization && !weights;
  const auto parameters =
      source_of(Weights{.type = options.weights, .stored = source.from, .quantized = is_stored});
  const onnx::Graph graph =
      onnx::t5_graph(model.spec(), parameters, options, data_writer ? &*data_writer : nullptr);
  const std::string head = onnx::model_head(graph, {{"model", source.name},
                                                    {"step", std::to_string(source.from->step())},
                                                    {"eos_id", std::to_string(options.eos_id)}});
  int64_t bytes = write(file.prepared(), head, graph.body());
  // First, so that there is no graph without its weights.
  if (data) {
    bytes += data_writer->finish();
    data->commit();
  }
  file.commit();
  return bytes;
}

}  // namespace quintet
