#include "apps/export/export_onnx.h"

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

/// As a server of the model has it: TextModel.
onnx::GraphOptions options_of(const ExportSource& source, std::optional<DType> dtype,
                              std::optional<WeightType> weights) {
  onnx::GraphOptions options{.dtype = dtype.value_or(DType::f32),
                             .weights = weights.value_or(WeightType::f32)};
  if (const auto vocabulary = source.model->output_vocabulary.object_as<const data::Vocabulary>())
    options.eos_id = vocabulary->eos_id().value_or(1);
  if (const auto length = source.answer_length) options.max_decode_len = *length;
  return options;
}

/// Of the weights, at most: in a byte some are in two, and have scales.
int64_t most_bytes(const BaseModel& model, const onnx::GraphOptions& options) {
  const bool whole = options.weights == WeightType::f32;
  return model.parameters().elements() * (whole ? size_of(options.dtype) : 2);
}

void write(const std::filesystem::path& path, const std::string& text) {
  File out = File::create_new(path);
  out.reserve(std::ssize(text));
  out.write_at(0, std::as_bytes(std::span(text)));
  out.sync();
  out.close_checked();
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
  if (external || most_bytes(model, options) >= kMostBytes) {
    data.emplace(data_path);
    data_writer.emplace(File::create_new(data->prepared()), data_path.filename().string());
  }
  source.from->verify_before_reading();
  const bool is_stored = quantization && !weights;
  const auto parameters =
      source_of(Weights{.type = options.weights, .stored = source.from, .quantized = is_stored});
  const std::string text = onnx::model_of(onnx::t5_graph(model.spec(), parameters, options,
                                                         data_writer ? &*data_writer : nullptr),
                                          {{"model", source.name},
                                           {"step", std::to_string(source.from->step())},
                                           {"eos_id", std::to_string(options.eos_id)}})
                               .str();
  write(file.prepared(), text);
  int64_t bytes = std::ssize(text);
  // First, so that there is no graph without its weights.
  if (data) {
    bytes += data_writer->finish();
    data->commit();
  }
  file.commit();
  return bytes;
}

}  // namespace quintet
