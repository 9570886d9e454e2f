#include "runtime/tensor/tensor.h"

#include "kernels/gpu/gpu_kernels.h"
#include "runtime/base/memory/memory_meter.h"
#include "runtime/mesh/sharding.h"

namespace quintet {

Tensor::Tensor(Spec spec, Layout layout, Block global_slice, Buffer memory)
    : impl_(std::make_shared<Impl>()) {
  QT_ASSERT(spec.axes.size() == global_slice.sizes.size() && spec.axes.size() <= kMaxRank);
  Block block = layout.sharded() ? ExecutionContext::current().sharding->block("array", spec,
                                                                               layout, global_slice)
                                 : global_slice;
  int64_t elements = 1;
  for (int64_t s : block.sizes) elements *= s;
  impl_->device = &Device::current();
  impl_->buffer = memory != nullptr
                      ? std::move(memory)
                      : impl_->device->memory().allocate(elements * size_of(spec.dtype));
  impl_->spec = std::move(spec);
  impl_->layout = std::move(layout);
  impl_->global_slice = std::move(global_slice);
  impl_->block = std::move(block);
}

Tensor::Tensor(Spec spec) {
  Layout layout;
  layout.dims.resize(spec.axes.size());
  const Block block = full_slice(spec);
  *this = Tensor(std::move(spec), std::move(layout), block);
}

Tensor Tensor::from_host(const HostArray& array, const std::vector<std::string>& axis_names) {
  QT_ASSERT(axis_names.size() == array.shape.size());
  Spec spec{{}, array.dtype};
  for (size_t i = 0; i < axis_names.size(); ++i)
    spec.axes.push_back({axis_names[i], array.shape[i]});
  Tensor tensor(std::move(spec));
  tensor.set(array);
  return tensor;
}

Tensor Tensor::zeros(Spec spec) {
  Tensor tensor(std::move(spec));
  tensor.device().fill(tensor.local().pointer, 0, tensor.bytes());
  return tensor;
}

Tensor Tensor::scalar(float value) {
  Tensor tensor(Spec{{}, DType::f32});
  if (Device& device = tensor.device(); device.is_cpu())
    tensor.data<float>()[0] = value;
  else
    device.kernels().fill(tensor.local(), value, device.stream());  // may be recorded
  tensor.impl_->host_value = static_cast<double>(value);
  return tensor;
}

int64_t Tensor::size(int i) const {
  const auto& axes = impl_->spec.axes;
  return axes[static_cast<size_t>(i < 0 ? static_cast<int>(axes.size()) + i : i)].size;
}

int64_t Tensor::bytes() const { return local().elements() * size_of(impl_->spec.dtype); }

View Tensor::local() const {
  if (absent()) return View::none();
  View view;
  view.pointer = impl_->buffer.get();
  view.dtype = impl_->spec.dtype;
  view.rank = static_cast<int>(impl_->spec.axes.size());
  for (size_t i = 0; i < impl_->spec.axes.size(); ++i) {
    view.sizes[i] = impl_->block.sizes[i];
    view.origin[i] = impl_->block.origin[i];
    view.global[i] = impl_->spec.axes[i].size;
  }
  return view;
}

double Tensor::item() const {
  QT_ASSERT(local().elements() == 1);
  if (impl_->host_value) return *impl_->host_value;
  const HostArray value = to_host();
  return value.dtype == DType::f32 ? static_cast<double>(value.as<float>()[0])
                                   : static_cast<double>(value.as<int32_t>()[0]);
}

HostArray Tensor::to_host() const {
  HostArray array(impl_->spec.dtype, impl_->block.sizes);
  device().copy_out(array.bytes.data(), local().pointer, bytes());
  return array;
}

void Tensor::set(const HostArray& array) const {
  QT_ASSERT(array.shape == impl_->block.sizes && array.dtype == impl_->spec.dtype);
  device().copy_in(local().pointer, array.bytes.data(), bytes());
}

Tensor& Tensor::set_needs_grad(bool needs_grad) {
  impl_->needs_grad = needs_grad;
  return *this;
}

Tensor Tensor::detach() const {
  Tensor leaf;
  leaf.impl_ = std::make_shared<Impl>(*impl_);
  leaf.impl_->needs_grad = false;
  leaf.impl_->grad = nullptr;
  return leaf;
}

Tensor Tensor::summed(const Layout& layout) const {
  QT_ASSERT(layout.dims == impl_->layout.dims);
  Tensor sum = detach();
  sum.impl_->layout = layout;
  sum.impl_->host_value.reset();
  return sum;
}

void Tensor::count_as(MemoryKind kind) const { quintet::count_as(impl_->buffer, kind); }

Tensor Tensor::grad() const {
  Tensor grad;
  if (impl_ != nullptr) grad.impl_ = impl_->grad;
  return grad;
}

void Tensor::set_grad(Tensor grad) const {
  if (grad) grad.count_as(MemoryKind::kGradients);
  impl_->grad = std::move(grad.impl_);
}

}  // namespace quintet
