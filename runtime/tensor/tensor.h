#pragma once
// A tensor: a cheap handle to this rank's block of an array, with the array's global shape, its
// layout on the mesh, and its place on the tape. Copies share storage.
//
//   Tensor x = Tensor::from_host(array, {"batch", "length"});
//   Tensor y = ops::scale(x, 0.5);
//   y.local().data<float>()

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "runtime/base/host_array.h"
#include "runtime/base/view.h"
#include "runtime/mesh/layout.h"

namespace quintet {

class Tensor {
 public:
  /// An absent operand.
  Tensor() = default;
  /// Uninitialised storage for this rank's part of `global_slice`, a range of the array that `layout`
  /// shards; in `memory`, which has that size, if it is given.
  Tensor(Spec spec, Layout layout, Block global_slice, Buffer memory = nullptr);
  /// Uninitialised and unsharded.
  explicit Tensor(Spec spec);
  /// A scalar whose value the host knows: item() does not wait for the device.
  static Tensor scalar(float value);
  /// A copy of host data; axis names in order. Throws Bug if their number is not the array's rank.
  static Tensor from_host(const HostArray& array, const std::vector<std::string>& axis_names);
  static Tensor zeros(Spec spec);

  bool absent() const { return impl_ == nullptr; }
  explicit operator bool() const { return impl_ != nullptr; }
  const Spec& spec() const { return impl_->spec; }
  const Layout& layout() const { return impl_->layout; }
  const Block& global_slice() const { return impl_->global_slice; }
  const Block& block() const { return impl_->block; }
  int64_t size(int i) const;  // global size of axis i; negative counts from the end
  int64_t bytes() const;      // of the local block

  /// The local block, or View::none() of an absent tensor.
  View local() const;
  /// The first byte of the local block, in the device's memory.
  std::byte* raw() const { return impl_->buffer.get(); }
  /// Elements of the local block; throws Bug if T is not the dtype or on a GPU (use to_host).
  template <typename T>
  std::span<T> data() const {
    QT_ASSERT(device().is_cpu());
    return {local().data<T>(), static_cast<size_t>(local().elements())};
  }
  /// The only element of a scalar, as double. Waits for the device.
  double item() const;
  HostArray to_host() const;
  /// Overwrites the local block; `array` must have its shape and dtype.
  void set(const HostArray& array) const;
  Device& device() const { return *impl_->device; }

  bool needs_grad() const { return impl_ != nullptr && impl_->needs_grad; }
  Tensor& set_needs_grad(bool needs_grad);
  /// The same storage under a new identity: a leaf without gradient.
  Tensor detach() const;
  /// The same storage, where the open sums that `layout` does not leave are going to be taken in place.
  Tensor summed(const Layout& layout) const;
  /// What it counts as from now on (memory_meter.h).
  void count_as(MemoryKind kind) const;
  /// Gradient of a leaf after Tape::backward; absent if none reached it.
  Tensor grad() const;
  void set_grad(Tensor grad) const;

  /// Gives the storage back, of all handles to it: what stays is what gradients find it by.
  void release() const { impl_->buffer.reset(); }

  /// Whether nobody else shares the storage (so it may be overwritten).
  bool unique() const { return impl_.use_count() == 1 && impl_->buffer.use_count() == 1; }
  const void* id() const { return impl_.get(); }

 private:
  struct Impl {
    Spec spec;
    Layout layout;
    Block global_slice, block;
    Buffer buffer;
    Device* device = nullptr;
    std::optional<double> host_value;
    bool needs_grad = false;
    std::shared_ptr<Impl> grad;
  };
  std::shared_ptr<Impl> impl_;
};

using Tensors = std::vector<Tensor>;

}  // namespace quintet
