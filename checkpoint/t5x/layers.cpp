#include "checkpoint/t5x/layers.h"

#include <mutex>

#include "checkpoint/arrays/blocks.h"
#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/t5x/layout.h"
#include "runtime/base/check.h"

namespace quintet::t5x {
namespace {

class LayerReader final : public CheckpointReader {
 public:
  LayerReader(std::shared_ptr<const CheckpointReader> stored, std::map<std::string, Source> sources)
      : CheckpointReader(stored->folder()),
        stored_(std::move(stored)),
        sources_(std::move(sources)) {
    for (const auto& [name, source] : sources_)
      tensors_[name] = {stored_->tensors().at(source.stored).dtype, source.shape};
  }

  int64_t file_bytes() const override { return stored_->file_bytes(); }
  int64_t step() const override { return stored_->step(); }
  std::vector<std::pair<std::string, std::string>> details() const override {
    auto details = stored_->details();
    details.emplace_back(
        "layout",
        fmt::format("{} arrays of the {} there: layers apart, heads joined, without slots "
                    "of the optimizer that are not used",
                    tensors_.size(), stored_->tensors().size()));
    return details;
  }
  using CheckpointReader::verify;
  NotFinite verify(int part, int parts) const override { return stored_->verify(part, parts); }
  bool reading_verifies() const override { return stored_->reading_verifies(); }
  std::string storage_key(const std::string& name) const override {
    const auto found = sources_.find(name);
    if (found == sources_.end()) return name;
    return fmt::format("{}/{:08}", found->second.stored, found->second.layer);
  }

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override {
    const Source& source = sources_.at(region.name);
    if (source.joined < 0) return read_stored(source, region.origin, region.sizes, target);
    // Whole heads are read; what the region has not of the first and last falls away.
    const auto axis = static_cast<size_t>(source.joined);
    Block heads{region.origin, region.sizes};
    const int64_t first = region.origin[axis] / source.inner;
    const int64_t end =
        (region.origin[axis] + region.sizes[axis] + source.inner - 1) / source.inner;
    heads.origin[axis] = first * source.inner;
    heads.sizes[axis] = (end - first) * source.inner;
    std::vector<int64_t> origin = heads.origin, sizes = heads.sizes;
    origin[axis] = first;
    sizes[axis] = end - first;
    origin.insert(origin.begin() + source.joined + 1, 0);
    sizes.insert(sizes.begin() + source.joined + 1, source.inner);
    if (heads.sizes == region.sizes) return read_stored(source, origin, sizes, target);
    HostArray read(tensors_.at(region.name).dtype, sizes);
    read_stored(source, origin, sizes, read.bytes.data());
    copy_overlap(heads, read.bytes.data(), {region.origin, region.sizes}, target,
                 size_of(read.dtype));
  }

 private:
  /// Chunks hold all layers of a stack. Who reads the first layer is taken to go on with the others: the same
  /// region of all is decompressed then, and kept until the last.
  void read_stored(const Source& source, std::vector<int64_t> origin, std::vector<int64_t> sizes,
                   std::byte* target) const {
    if (source.layer_axis < 0) return stored_->read({source.stored, origin, sizes}, target);
    const auto axis = static_cast<size_t>(source.layer_axis);
    const int64_t layers = stored_->tensors().at(source.stored).shape[axis];
    origin.insert(origin.begin() + source.layer_axis, 0);
    sizes.insert(sizes.begin() + source.layer_axis, layers);
    const std::lock_guard lock(mutex_);
    const bool is_kept =
        kept_.name == source.stored && kept_.origin == origin && kept_.sizes == sizes;
    if (!is_kept && source.layer == 0) {
      stack_ = {};  // before the next one is there
      kept_ = {source.stored, origin, sizes};
      stack_ = HostArray(stored_->tensors().at(source.stored).dtype, sizes);
      stored_->read(kept_, stack_.bytes.data());
    }
    std::vector<int64_t> within(origin.size());
    sizes[axis] = 1;
    within[axis] = origin[axis] = source.layer;
    if (!is_kept && source.layer != 0) return stored_->read({source.stored, origin, sizes}, target);
    FileTensor::dense(stack_.dtype, stack_.shape, stack_.bytes).copy_region(within, sizes, target);
    if (source.layer + 1 < layers) return;
    kept_ = {};
    stack_ = {};
  }

  std::shared_ptr<const CheckpointReader> stored_;
  std::map<std::string, Source> sources_;
  mutable std::mutex mutex_;
  mutable TensorRegion kept_;  // of stored_: what stack_ holds; no name: nothing
  mutable HostArray stack_;
};

}  // namespace

std::shared_ptr<const CheckpointReader> by_layer(std::shared_ptr<const CheckpointReader> stored) {
  std::map<std::string, Source> sources = layout_of(stored->tensors(), stored->folder().string());
  if (sources.empty()) return stored;
  return std::make_shared<const LayerReader>(std::move(stored), std::move(sources));
}

}  // namespace quintet::t5x
