#include "checkpoint/lora/adapter.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/arrays/half.h"
#include "checkpoint/manifest.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"
#include "runtime/base/formats/json.h"
#include "runtime/tensor/low_rank.h"

namespace quintet {
namespace {

constexpr std::string_view kKernel = "kernel", kMatrixA = "lora_a", kMatrixB = "lora_b";

HostArray read_floats(const CheckpointReader& from, const std::string& name,
                      std::vector<int64_t> origin, std::vector<int64_t> sizes) {
  const DType dtype = from.tensors().at(name).dtype;
  QT_CHECK_AS(ExitCode::kData, is_floating(dtype) && dtype != DType::f64,
              "{}: tensor '{}' is {}: adapters are merged into float32, bfloat16 or float16",
              from.folder().string(), name, name_of(dtype));
  HostArray array(dtype, sizes);
  from.read({name, std::move(origin), std::move(sizes)}, array.bytes.data());
  return as_float32(std::move(array));
}

HostArray read_matrix(const CheckpointReader& from, const std::string& name) {
  const auto found = from.tensors().find(name);
  QT_CHECK_AS(ExitCode::kData, found != from.tensors().end() && found->second.shape.size() == 2,
              "{}: has no matrix '{}', which its adapter needs", from.folder().string(), name);
  return read_floats(from, name, {0, 0}, found->second.shape);
}

class AdaptedReader final : public CheckpointReader {
 public:
  AdaptedReader(std::shared_ptr<const CheckpointReader> base, Adapter adapter, std::string state,
                std::optional<int64_t> step)
      : CheckpointReader(adapter.folder),
        base_(std::move(base)),
        adapter_(std::move(adapter)),
        state_(std::move(state)),
        step_(step.value_or(base_->step())) {
    for (const auto& [name, tensor] : base_->tensors())
      if (name.starts_with(kParameterPrefix)) tensors_[name] = tensor;
    for (const auto& [kernel, matrices] : adapter_.kernels) tensors_.at(kernel).dtype = DType::f32;
  }

  const Adapter& adapter() const { return adapter_; }
  int64_t file_bytes() const override { return base_->file_bytes(); }
  std::vector<std::pair<std::string, std::string>> details() const override {
    auto details = base_->details();
    uint32_t crc = 0;
    for (const auto& [kernel, matrices] : adapter_.kernels) {
      crc = crc32c(fmt::format("{} {}", kernel, matrices.alpha), crc);
      for (const HostArray* matrix : {&matrices.a, &matrices.b}) crc = crc32c(matrix->bytes, crc);
    }
    details.emplace_back(
        kAdapterDetail, fmt::format("{}, step {}, checksum {:08x}, of {} kernels, merged into {}",
                                    std::filesystem::weakly_canonical(folder_).string(), step_, crc,
                                    adapter_.kernels.size(), base_->folder().string()));
    return details;
  }
  int64_t step() const override { return step_; }
  const std::string& state_json() const override {
    return state_.empty() ? base_->state_json() : state_;
  }
  bool is_native() const override { return !state_.empty() || base_->is_native(); }
  using CheckpointReader::verify;
  NotFinite verify(int part, int parts) const override { return base_->verify(part, parts); }
  bool reading_verifies() const override { return base_->reading_verifies(); }
  std::string storage_key(const std::string& name) const override {
    return base_->storage_key(name);
  }

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override {
    const auto found = adapter_.kernels.find(region.name);
    if (found == adapter_.kernels.end()) return base_->read(region, target);
    const HostArray w = read_floats(*base_, region.name, region.origin, region.sizes);
    const LowRankMatrices& low = found->second;
    auto* out = reinterpret_cast<float*>(target);
    std::copy_n(w.as<float>().data(), w.elements(), out);
    add_low_rank(low.a.as<float>().data() + region.origin[0] * low.rank(),
                 low.b.as<float>().data() + region.origin[1], static_cast<float>(low.scale()),
                 region.sizes[0], low.rank(), region.sizes[1], low.b.shape[1], out);
  }
  std::optional<RegionInPlace> region_in_place(const TensorRegion& region) const override {
    if (adapter_.kernels.contains(region.name)) return std::nullopt;
    return base_->in_place(region);
  }

 private:
  std::shared_ptr<const CheckpointReader> base_;
  Adapter adapter_;
  std::string state_;
  int64_t step_;
};

}  // namespace

std::string lora_name(const std::string& kernel, const char* matrix) {
  QT_ASSERT(kernel.ends_with(kKernel));
  return kernel.substr(0, kernel.size() - kKernel.size()) + matrix;
}

std::string to_json(const AdapterRecord& record) {
  return nlohmann::ordered_json{{"base", record.base},
                                {"rank", record.rank},
                                {"alpha", record.alpha},
                                {"marks", record.marks}}
      .dump();
}

std::optional<AdapterRecord> adapter_record(const std::string& state_json,
                                            const std::string& where) {
  const Json state = Json::parse(state_json, where + ": state");
  if (!state.has("lora")) return std::nullopt;
  const Json lora = state["lora"];
  AdapterRecord record{.base = lora["base"].as_string(),
                       .rank = lora["rank"].as_int(),
                       .alpha = lora["alpha"].as_double(),
                       .marks = {}};
  for (const auto& [kernel, sum] : lora["marks"].members()) record.marks[kernel] = sum.as_double();
  QT_CHECK_AS(ExitCode::kData, record.rank > 0,
              "{}: state: lora.rank: expected 1 or more, found {}", where, record.rank);
  return record;
}

std::string without_adapter(const std::string& state_json) {
  auto state = nlohmann::ordered_json::parse(state_json);
  state.erase("lora");
  return state.dump();
}

std::optional<Adapter> adapter_of(const CheckpointReader& native) {
  const auto record = adapter_record(native.state_json(), native.folder().string());
  if (!record) return std::nullopt;
  native.verify();
  Adapter adapter{native.folder(), record->base, record->marks, {}};
  for (const auto& [name, tensor] : native.tensors()) {
    if (!name.starts_with(kParameterPrefix) || !name.ends_with(kMatrixA)) continue;
    const std::string place = name.substr(0, name.size() - kMatrixA.size());
    adapter.kernels[place + std::string(kKernel)] = {
        read_matrix(native, name), read_matrix(native, place + std::string(kMatrixB)),
        record->alpha};
  }
  return adapter;
}

BaseMarks marks_of(const CheckpointReader& base, const std::vector<std::string>& kernels) {
  BaseMarks marks;
  for (const size_t i : {size_t{0}, kernels.size() - 1}) {
    const HostArray row =
        read_floats(base, kernels[i], {0, 0}, {1, base.tensors().at(kernels[i]).shape.at(1)});
    double& sum = marks[kernels[i]] = 0;
    for (const float w : row.as<float>()) sum += static_cast<double>(std::abs(w));
  }
  return marks;
}

void check_marks(const CheckpointReader& base, const BaseMarks& marks, const std::string& adapter) {
  constexpr double kRounding = 1e-3;
  for (const auto& [kernel, sum] : marks) {
    const double found = marks_of(base, {kernel}).at(kernel);
    QT_CHECK_AS(ExitCode::kData, std::abs(found - sum) <= kRounding * std::abs(sum),
                "{}: was trained on another base than {}: the first row of {} adds up to {:.6g} "
                "there, to {:.6g} here; name the base that it was trained on",
                adapter, base.folder().string(), kernel, sum, found);
  }
}

std::shared_ptr<const CheckpointReader> with_adapter(std::shared_ptr<const CheckpointReader> base,
                                                     Adapter adapter, std::string state,
                                                     std::optional<int64_t> step) {
  const std::string where = adapter.folder.string();
  QT_CHECK_AS(ExitCode::kData, !adapter.kernels.empty(), "{}: holds no adapter matrices", where);
  for (const auto& [kernel, matrices] : adapter.kernels) {
    const HostArray &a = matrices.a, &b = matrices.b;
    const std::vector<int64_t> shape{a.shape[0], b.shape[1]};
    const auto found = base->tensors().find(kernel);
    QT_CHECK_AS(ExitCode::kData, a.shape[1] == b.shape[0],
                "{}: the adapter of {} has matrices {} and {}, which have no rank in common", where,
                kernel, shape_text(a.shape), shape_text(b.shape));
    QT_CHECK_AS(ExitCode::kData, found != base->tensors().end(),
                "{}: adapts {}, which {} does not have; name the base that it was trained on",
                where, kernel, base->folder().string());
    QT_CHECK_AS(ExitCode::kData, found->second.shape == shape,
                "{}: adapts {} of shape {}, which has shape {} in {}; name the base that it was "
                "trained on",
                where, kernel, shape_text(shape), shape_text(found->second.shape),
                base->folder().string());
  }
  for (const auto& [kernel, matrices] : adapter.kernels) read_floats(*base, kernel, {0, 0}, {0, 0});
  check_marks(*base, adapter.marks, where);
  return std::make_shared<const AdaptedReader>(std::move(base), std::move(adapter),
                                               std::move(state), step);
}

const Adapter* adapter_in(const CheckpointReader& checkpoint) {
  const auto* adapted = dynamic_cast<const AdaptedReader*>(&checkpoint);
  return adapted == nullptr ? nullptr : &adapted->adapter();
}

}  // namespace quintet
