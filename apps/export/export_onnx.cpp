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
onnx::GraphOptions options_of(const ExportSource& source, std::optional<DType> dtype) {
  onnx::GraphOptions options{.dtype = dtype.value_or(DType::f32)};
  if (const auto vocabulary = source.model->output_vocabulary.object_as<const data::Vocabulary>())
    options.eos_id = vocabulary->eos_id().value_or(1);
  if (const auto length = source.answer_length) options.max_decode_len = *length;
  return options;
}

}  // namespace

int64_t export_onnx(const ExportSource& source, std::optional<DType> dtype) {
  const BaseModel& model = *source.model->model;
  onnx::check_has_graph(model.spec());
  const auto stored = quantization_of(*source.from);
  QT_CHECK(!stored, "{}: holds weights in {}; name the run that it was made from",
           source.from->folder().string(), name_of(stored.value_or(WeightType::f32)));
  check_parameters(*source.from, source.model->model->parameters());
  const onnx::GraphOptions options = options_of(source, dtype);
  const int64_t bytes = model.parameters().elements() * size_of(options.dtype);
  QT_CHECK(bytes < kMostBytes,
           "--format=onnx: the weights are {:.1f} GiB in {}, and an ONNX file has at most 2 GiB; "
           "use --dtype=bfloat16, or write a bundle",
           static_cast<double>(bytes) / (1 << 30), name_of(options.dtype));
  NewFile file(source.output);
  source.from->verify_before_reading();
  const std::string text =
      onnx::model_of(
          onnx::t5_graph(model.spec(), source_of(Weights{.stored = source.from}), options),
          {{"model", source.name},
           {"step", std::to_string(source.from->step())},
           {"eos_id", std::to_string(options.eos_id)}})
          .str();
  File out = File::create_new(file.prepared());
  out.reserve(std::ssize(text));
  out.write_at(0, std::as_bytes(std::span(text)));
  out.sync();
  out.close_checked();
  file.commit();
  return std::ssize(text);
}

}  // namespace quintet
