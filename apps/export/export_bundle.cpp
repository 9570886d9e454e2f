#include "apps/export/export_bundle.h"

#include <nlohmann/json.hpp>

#include "apps/input/run_vocabularies.h"
#include "apps/model/checkpoint_parameters.h"
#include "apps/model/quantized_model.h"
#include "apps/process/progress.h"
#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/manifest.h"
#include "checkpoint/write/bundle_writer.h"
#include "checkpoint/write/copy_checkpoint.h"
#include "checkpoint/write/new_file.h"

namespace quintet {
namespace {

/// Arrays in memory, read as a checkpoint.
class ArraysReader final : public CheckpointReader {
 public:
  ArraysReader(const CheckpointReader& of, HostArrays arrays)
      : CheckpointReader(of.folder()), step_(of.step()), arrays_(std::move(arrays)) {
    for (const auto& [name, array] : arrays_) tensors_[name] = {array.dtype, array.shape};
  }
  int64_t file_bytes() const override { return 0; }
  int64_t step() const override { return step_; }
  NotFinite verify(int, int) const override { return {}; }

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override {
    const HostArray& array = arrays_.at(region.name);
    FileTensor::dense(array.dtype, array.shape, array.bytes)
        .copy_region(region.origin, region.sizes, target);
  }

 private:
  int64_t step_;
  HostArrays arrays_;
};

std::shared_ptr<const CheckpointReader> quantized(const ExportSource& source, WeightType weights) {
  BaseModel& model = *source.model->model;
  load_parameters(*source.from, model.parameters());
  return std::make_shared<ArraysReader>(*source.from, quantized_arrays(model, weights));
}

int64_t megabytes(int64_t bytes) { return (bytes + 999'999) / 1'000'000; }

}  // namespace

int64_t export_bundle(const ExportSource& source, std::optional<DType> dtype,
                      std::optional<WeightType> weights) {
  const auto quantization = quantization_of(source, dtype, weights);
  const data::VocabularyRecords vocabularies = vocabularies_of(*source.model);
  nlohmann::ordered_json state;
  if (quantization) state["quantized"] = name_of(*quantization);
  state["vocabularies"] = to_json(vocabularies);
  if (!source.generation_config.empty())
    state[kGenerationConfig] = nlohmann::ordered_json::parse(source.generation_config);
  NewFile file(source.output);
  source.from->verify_before_reading();
  const auto from = weights ? quantized(source, *weights) : source.from;
  WriteRequest request{.folder = file.prepared(),
                       .tensors = tensors_for(*from, bundle::format(), dtype),
                       .step = from->step(),
                       .state_json = state.dump(),
                       .config_text = source.config,
                       .name = source.name,
                       .vocabularies = vocabulary_files(vocabularies)};
  int64_t total = 0;
  for (const auto& [name, tensor] : request.tensors)
    total += checked_bytes(tensor.dtype, tensor.shape, name);
  PartsProgress progress;
  HostGroup alone;
  copy_checkpoint(*from, bundle::format(), request, alone, [&](const char* what, int64_t bytes) {
    progress.update(what, megabytes(bytes), megabytes(total), "MB");
  });
  progress.finish();
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(file.prepared()));
  file.commit();
  return bytes;
}

}  // namespace quintet
