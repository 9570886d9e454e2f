#include "apps/export/export_onnx.h"

#include <set>

#include "apps/export/onnx/t5_graph.h"
#include "apps/model/checkpoint_parameters.h"
#include "apps/model/quantized_model.h"
#include "apps/model/trained_dataset.h"
#include "checkpoint/write/new_file.h"
#include "data/vocabularies/vocabulary.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/process/messages.h"

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
  if (source.defaults)
    options.eos_ids = source.defaults->eos_ids;
  else if (const auto vocabulary =
               source.model->output_vocabulary.object_as<const data::Vocabulary>())
    options.eos_ids = {vocabulary->eos_id().value_or(1)};
  if (const auto length = source.answer_length) options.max_decode_len = *length;
  // Of weights in a byte some are in two, and have scales.
  options.most_bytes =
      source.model->model->parameters().elements() * (weights ? 2 : size_of(options.dtype));
  return options;
}

/// What generate does by the directory's file and a graph does not: it is greedy.
void warn_of_rules(const GenerationDefaults& of, const std::string& where) {
  const std::pair<const char*, bool> fields[] = {
      {"num_beams", of.num_beams.value_or(1) > 1},
      {"min_new_tokens", of.min_new_tokens.value_or(0) > 0},
      {"no_repeat_ngram_size", of.no_repeat_ngram_size.value_or(0) > 0},
      {"repetition_penalty", of.repetition_penalty.value_or(1) != 1},
      {"do_sample", of.temperature.has_value()},
      {"rules of tokens (suppress_tokens, bad_words_ids, forced_bos_token_id, ..)",
       !of.rules.empty()}};
  for (const auto& [field, acts] : fields)
    if (acts)
      print_warning("{}: {} has no effect in an ONNX graph, which takes the likeliest token", where,
                    field);
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
  if (source.defaults) warn_of_rules(*source.defaults, source.from->folder().string());
  const std::filesystem::path data_path = source.output + ".data";
  NewFile file(source.output);
  std::optional<NewFile> data;
  std::optional<onnx::ExternalData> data_writer;
  // Beside weights there are operators, and bias tables that are widened to distances.
  if (external || options.most_bytes + onnx::kMostOperatorBytes >= kMostBytes) {
    data.emplace(data_path);
    data_writer.emplace(File::create_new(data->prepared()), data_path.filename().string());
  }
  source.from->verify_before_reading();
  const bool is_stored = quantization && !weights;
  const auto parameters =
      source_of(Weights{.type = options.weights, .stored = source.from, .quantized = is_stored});
  const onnx::Graph graph =
      onnx::t5_graph(model.spec(), parameters, options, data_writer ? &*data_writer : nullptr);
  const std::string head =
      onnx::model_head(graph, {{"model", source.name},
                               {"step", std::to_string(source.from->step())},
                               {"eos_id", fmt::format("{}", fmt::join(options.eos_ids, ","))}});
  QT_CHECK(std::ssize(head) + std::ssize(graph.body()) <= kMostBytes,
           "{}: {} bytes are more than an ONNX file holds; use --external_data", source.output,
           std::ssize(head) + std::ssize(graph.body()));
  int64_t bytes = write(file.prepared(), head, graph.body());
  // First, so that there is no graph without its weights.
  if (data) {
    bytes += data_writer->finish();
    data->commit();
  }
  try {
    file.commit();
  } catch (...) {
    if (data) std::filesystem::remove(data_path);  // or the next export refuses to replace it
    throw;
  }
  return bytes;
}

}  // namespace quintet
