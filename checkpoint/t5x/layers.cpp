#include "checkpoint/t5x/layers.h"

#include "checkpoint/arrays/blocks.h"
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

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override {
    const Source& source = sources_.at(region.name);
    if (source.joined < 0)
      return stored_->read(stored_region(source, region.origin, region.sizes), target);
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
    const TensorRegion wanted = stored_region(source, std::move(origin), std::move(sizes));
    if (heads.sizes == region.sizes) return stored_->read(wanted, target);
    const HostArray read = [&] {
      HostArray array(tensors_.at(region.name).dtype, wanted.sizes);
      stored_->read(wanted, array.bytes.data());
      return array;
    }();
    copy_overlap(heads, read.bytes.data(), {region.origin, region.sizes}, target,
                 size_of(read.dtype));
  }

 private:
  static TensorRegion stored_region(const Source& source, std::vector<int64_t> origin,
                                    std::vector<int64_t> sizes) {
    if (source.layer_axis >= 0) {
      origin.insert(origin.begin() + source.layer_axis, source.layer);
      sizes.insert(sizes.begin() + source.layer_axis, 1);
    }
    return {source.stored, std::move(origin), std::move(sizes)};
  }

  std::shared_ptr<const CheckpointReader> stored_;
  std::map<std::string, Source> sources_;
};

}  // namespace

std::shared_ptr<const CheckpointReader> by_layer(std::shared_ptr<const CheckpointReader> stored) {
  std::map<std::string, Source> sources = layout_of(stored->tensors(), stored->folder().string());
  if (sources.empty()) return stored;
  return std::make_shared<const LayerReader>(std::move(stored), std::move(sources));
}

}  // namespace quintet::t5x
