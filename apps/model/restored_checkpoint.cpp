#include "apps/model/restored_checkpoint.h"

#include <cstring>

#include "apps/model/assignment_map.h"
#include "apps/model/quantized_model.h"
#include "checkpoint/arrays/half.h"
#include "checkpoint/open/open_checkpoint.h"
#include "runtime/base/process/messages.h"

namespace quintet {
namespace {

constexpr const char* kStep = "state/step";

bool is_parameter(const std::string& name) { return name.starts_with(kParameterPrefix); }

class RestoredCheckpoint final : public CheckpointReader {
 public:
  RestoredCheckpoint(std::shared_ptr<const CheckpointReader> stored,
                     const RestoreCheckpointConfig& config, const ArrayShapes& model)
      : CheckpointReader(stored->folder()),
        stored_(std::move(stored)),
        dtype_(config.dtype),
        sources_(sources(config.transformations, model)),
        step_(find_step()) {
    for (const auto& [name, source] : sources_) {
      StoredTensor& tensor = tensors_[name];
      tensor = stored_->tensors().at(source);
      if (rounds(name)) tensor.dtype = *dtype_;
      const auto wanted = model.find(name);
      if (wanted == model.end() || config.upcycled_experts == 0) continue;
      // So many experts of which the checkpoint has one.
      std::vector<int64_t> experts{config.upcycled_experts};
      experts.insert(experts.end(), tensor.shape.begin(), tensor.shape.end());
      if (experts.size() > 1 && wanted->second == experts) tensor.shape = experts;
    }
  }

  int64_t file_bytes() const override { return stored_->file_bytes(); }
  std::vector<std::pair<std::string, std::string>> details() const override {
    return stored_->details();
  }
  int64_t step() const override { return step_; }
  const std::string& state_json() const override { return stored_->state_json(); }
  bool is_native() const override { return stored_->is_native(); }
  using CheckpointReader::verify;
  NotFinite verify(int part, int parts) const override { return stored_->verify(part, parts); }
  bool reading_verifies() const override { return stored_->reading_verifies(); }
  std::string storage_key(const std::string& name) const override {
    const auto found = sources_.find(name);
    return stored_->storage_key(found == sources_.end() ? name : found->second);
  }

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override {
    const std::string& source = sources_.at(region.name);
    TensorRegion part{source, region.origin, region.sizes};
    int64_t experts = 1;
    if (stored_->tensors().at(source).shape.size() < region.sizes.size()) {
      experts = region.sizes.front();
      part.origin.erase(part.origin.begin());
      part.sizes.erase(part.sizes.begin());
    }
    if (experts == 0) return;
    const int64_t bytes = read_rounded(part, region.name, target);
    for (int64_t i = 1; i < experts; ++i)
      std::memcpy(target + i * bytes, target, static_cast<size_t>(bytes));
  }

 private:
  SourceNames sources(const std::vector<AssignmentMap>& transformations, const ArrayShapes& model) {
    SourceNames names;
    for (const auto& [name, tensor] : stored_->tensors()) names[name] = name;
    std::set<std::string> wanted;
    for (const auto& [name, shape] : model) wanted.insert(name);
    for (const AssignmentMap& map : transformations)
      names = apply_assignment_map(map, wanted, names, &dropped_);
    return names;
  }

  int64_t find_step() const {
    const auto found = sources_.find(kStep);
    // Forms without optimizer have a step, but no array of it: rules drop it likewise.
    if (found == sources_.end())
      return dropped_.contains(kStep) || stored_->tensors().contains(kStep) ? 0 : stored_->step();
    if (found->second == kStep) return stored_->step();
    const StoredTensor& tensor = stored_->tensors().at(found->second);
    QT_CHECK_AS(ExitCode::kData, tensor.dtype == DType::i32 && tensor.shape.empty(),
                "{}: {}: expected one int32 as {}", folder_.string(), found->second, kStep);
    int32_t step = 0;
    stored_->read({found->second, {}, {}}, reinterpret_cast<std::byte*>(&step));
    return step;
  }

  bool rounds(const std::string& name) const {
    const DType dtype = stored_->tensors().at(sources_.at(name)).dtype;
    return dtype_ && is_parameter(name) && is_floating(dtype) && dtype != DType::f64;
  }

  /// Gives the bytes written.
  int64_t read_rounded(const TensorRegion& part, const std::string& name, std::byte* target) const {
    const DType dtype = stored_->tensors().at(part.name).dtype;
    int64_t elements = 1;
    for (const int64_t size : part.sizes) elements *= size;
    if (!rounds(name) || dtype == *dtype_) {
      stored_->read(part, target);
      return elements * size_of(dtype);
    }
    HostArray array(dtype, part.sizes);
    stored_->read(part, array.bytes.data());
    const bool was_finite = count_not_finite(dtype, array.bytes) == 0;
    array = rounded(as_float32(std::move(array)), *dtype_);
    QT_CHECK_AS(ExitCode::kData, !was_finite || count_not_finite(*dtype_, array.bytes) == 0,
                "{}: {}: holds numbers too large for {}, which RestoreCheckpointConfig.dtype asks "
                "for; leave it None",
                folder_.string(), part.name, name_of(*dtype_));
    std::memcpy(target, array.bytes.data(), array.bytes.size());
    return std::ssize(array.bytes);
  }

  std::shared_ptr<const CheckpointReader> stored_;
  std::optional<DType> dtype_;
  std::set<std::string> dropped_;  // by the rules that sources_ comes from
  SourceNames sources_;
  int64_t step_;
};

}  // namespace

ArrayShapes shapes_of(const Parameters& parameters) {
  ArrayShapes shapes;
  for (const ParamInfo* info : parameters.of_base()) {
    std::vector<int64_t>& shape = shapes[parameter_key(info->name)];
    for (const Axis& axis : info->spec.axes) shape.push_back(axis.size);
  }
  shapes[kStep];
  return shapes;
}

bool has_optimizer_state(const CheckpointReader& checkpoint) {
  const auto first = checkpoint.tensors().lower_bound("state/param_states/");
  return first != checkpoint.tensors().end() && first->first.starts_with("state/param_states/");
}

std::shared_ptr<const CheckpointReader> restored(std::shared_ptr<const CheckpointReader> checkpoint,
                                                 const RestoreCheckpointConfig& config,
                                                 const ArrayShapes& model) {
  if (!config.adapter.empty()) checkpoint = adapted(std::move(checkpoint), config.adapter);
  const bool renames = !config.transformations.empty() || config.upcycled_experts > 0;
  if (renames) check_not_quantized(*checkpoint);
  if (!renames && (!config.dtype || quantization_of(*checkpoint))) return checkpoint;
  return std::make_shared<const RestoredCheckpoint>(std::move(checkpoint), config, model);
}

std::string initialized_text(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  constexpr size_t kShown = 8;
  const std::vector<std::string> shown(names.begin(),
                                       names.begin() + std::min(names.size(), kShown));
  return fmt::format("{}{} arrays are not read from the checkpoint and have initial values: {}{}\n",
                     warning_label(), names.size(), fmt::join(shown, ", "),
                     names.size() > kShown ? ", .." : "");
}

}  // namespace quintet
