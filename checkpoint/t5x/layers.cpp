#include "checkpoint/t5x/layers.h"

#include <algorithm>
#include <list>
#include <mutex>

#include "checkpoint/arrays/blocks.h"
#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/manifest.h"
#include "checkpoint/t5x/layout.h"
#include "runtime/base/check.h"

namespace quintet::t5x {
namespace {

class LayerReader final : public CheckpointReader {
 public:
  LayerReader(std::shared_ptr<const CheckpointReader> stored, std::map<std::string, Source> sources,
              int64_t most_bytes)
      : CheckpointReader(stored->folder()),
        stored_(std::move(stored)),
        sources_(std::move(sources)),
        most_bytes_(most_bytes) {
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
  /// Of one region of a stack, all layers.
  struct Stack {
    TensorRegion region;  // of stored_
    HostArray values;
  };

  /// Chunks hold all layers of a stack. Who reads the first layer is taken to go on with the others, in whatever
  /// order: the same region of all is decompressed then, and kept until the last.
  void read_stored(const Source& source, std::vector<int64_t> origin, std::vector<int64_t> sizes,
                   std::byte* target) const {
    if (source.layer_axis < 0) return stored_->read({source.stored, origin, sizes}, target);
    const auto axis = static_cast<size_t>(source.layer_axis);
    const int64_t layers = stored_->tensors().at(source.stored).shape[axis];
    origin.insert(origin.begin() + source.layer_axis, 0);
    sizes.insert(sizes.begin() + source.layer_axis, layers);
    const std::lock_guard lock(mutex_);
    auto kept = std::ranges::find_if(stacks_, [&](const Stack& stack) {
      return stack.region.name == source.stored && stack.region.origin == origin &&
             stack.region.sizes == sizes;
    });
    if (kept == stacks_.end() && source.layer == 0)
      kept = read_stack({source.stored, origin, sizes});
    std::vector<int64_t> within(origin.size());
    sizes[axis] = 1;
    within[axis] = origin[axis] = source.layer;
    if (kept == stacks_.end()) return stored_->read({source.stored, origin, sizes}, target);
    const HostArray& values = kept->values;
    FileTensor::dense(values.dtype, values.shape, values.bytes).copy_region(within, sizes, target);
    if (source.layer + 1 == layers) stacks_.erase(kept);
  }

  /// In place of the oldest ones where together they are too large.
  std::list<Stack>::iterator read_stack(TensorRegion region) const {
    const DType dtype = stored_->tensors().at(region.name).dtype;
    int64_t bytes = checked_bytes(dtype, region.sizes, region.name);
    for (const Stack& stack : stacks_) bytes += std::ssize(stack.values.bytes);
    for (; !stacks_.empty() && bytes > most_bytes_; stacks_.pop_front())
      bytes -= std::ssize(stacks_.front().values.bytes);
    Stack stack{std::move(region), {}};
    stack.values = HostArray(dtype, stack.region.sizes);
    stored_->read(stack.region, stack.values.bytes.data());
    return stacks_.insert(stacks_.end(), std::move(stack));
  }

  std::shared_ptr<const CheckpointReader> stored_;
  std::map<std::string, Source> sources_;
  int64_t most_bytes_;
  mutable std::mutex mutex_;
  mutable std::list<Stack> stacks_;
};

}  // namespace

std::shared_ptr<const CheckpointReader> by_layer(std::shared_ptr<const CheckpointReader> stored,
                                                 int64_t most_bytes) {
  std::map<std::string, Source> sources = layout_of(stored->tensors(), stored->folder().string());
  if (sources.empty()) return stored;
  return std::make_shared<const LayerReader>(std::move(stored), std::move(sources), most_bytes);
}

}  // namespace quintet::t5x
