#include "runtime/abstract/abstract_device.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/gpu/gpu_kernels.h"
#include "runtime/abstract/step_clock.h"
#include "runtime/op/op.h"

namespace quintet {
namespace {

/// Addresses that no processor has: nothing stands behind them, no limit of memory counts them, and
/// whoever follows one ends.
class AddressSpace final : public MemorySource {
 public:
  void* allocate(int64_t bytes) override {
    const auto size = static_cast<uintptr_t>(bytes + kAlign - 1) / kAlign * kAlign;
    return reinterpret_cast<void*>(next_.fetch_add(size));
  }
  void release(void*, int64_t) override {}
  std::string name() const override { return "address space"; }

 private:
  static constexpr int64_t kAlign = 2 << 20;
  std::atomic<uintptr_t> next_{uintptr_t{1} << 60};
};

/// A kernel of any arguments.
struct DoesNothing {
  template <typename... Arguments>
  using Kernel = void (*)(Arguments...);
  template <typename... Arguments>
  constexpr operator Kernel<Arguments...>() const {  // NOLINT: it becomes what the table has
    return [](Arguments...) { Device::current().counters().launch(); };
  }
};

/// Of experts or of an MLP whose gradient is computed: the gradients of both halves of `h`.
int64_t hidden_gradients(const View& h, const View& wi_1) {
  return h.elements() * size_of(h.dtype) * (wi_1.absent() ? 1 : 2);
}
int64_t mlp_scratch(Views in) {
  const View &x = in[0], &wi_0 = in[1];
  return x.elements() / std::max<int64_t>(x.depth(), 1) * wi_0.depth() * size_of(x.dtype);
}
int64_t mlp_grad_scratch(Views in) { return hidden_gradients(in[4], in[2]); }
int64_t experts_in_grad_scratch(Views in) { return hidden_gradients(in[4], in[3]); }

/// Operands that FP8 products cast for themselves, a byte a number, and gradients in both forms; transposes have whole units of
/// 16 rows.
struct Fp8Casts {
  int64_t rows, x, w, dy;  // columns of x, numbers of all w, columns of all dy
  explicit Fp8Casts(Views in) : rows(in[0].rows()), x(in[1].size(0)), w(0), dy(0) {
    for (const View& each : in.subspan(1, 3))
      if (!each.absent()) dy += each.size(1);
    w = x * dy;
  }
  int64_t padded() const { return (rows + 15) / 16 * 16; }
};
int64_t fp8_scratch(Views in) {
  const Fp8Casts of(in);
  return (in[0].dtype == DType::u8 ? 0 : of.rows * of.x) + (in[6].absent() ? of.w : 0);
}
int64_t fp8_grad_scratch(Views in) {
  const Fp8Casts of(in);
  return (in[5].absent() ? of.padded() * of.x : 0) + (in[6].absent() ? of.w : 0) +
         (of.rows + of.padded()) * of.dy;
}

template <int64_t (*bytes)(Views in)>
void op_with_scratch(Views in, Views, const Attrs&, Stream) {
  Device& device = Device::current();
  device.counters().launch();
  const MemoryScope scope(MemoryKind::kScratch);
  device.memory().allocate(bytes(in));
}

AddressSpace& address_space() {
  static AddressSpace space;
  return space;
}

}  // namespace

AbstractDevice::AbstractDevice(bool is_gpu)
    : is_gpu_(is_gpu),
      ops_(all_ops().size(),
           [](Views, Views, const Attrs&, Stream) { Device::current().counters().launch(); }),
      memory_(address_space()) {
  if (!is_gpu) return;
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Op* op = all_ops()[i];
    if (op == &ops::table::mlp) ops_[i] = op_with_scratch<mlp_scratch>;
    if (op == &ops::table::mlp_grad) ops_[i] = op_with_scratch<mlp_grad_scratch>;
    if (op == &ops::table::matmul_fp8) ops_[i] = op_with_scratch<fp8_scratch>;
    if (op == &ops::table::matmul_fp8_grad) ops_[i] = op_with_scratch<fp8_grad_scratch>;
    if (op == &ops::table::experts_in_grad) ops_[i] = op_with_scratch<experts_in_grad_scratch>;
  }
}

const GpuKernels& AbstractDevice::kernels() const {
  static constexpr DoesNothing kNothing;
  static constexpr GpuKernels table{
#define GPU_KERNEL(name, ...) kNothing,
#include "kernels/gpu/gpu_kernels.def"
#undef GPU_KERNEL
  };
  return table;
}

void AbstractDevice::copy(const StridedCopy& copy) {
  counters().launch();
  if (StepClock* clock = ExecutionContext::current().clock)
    clock->op("copy",
              {.bytes = 2.0 * static_cast<double>(copy.bytes * copy.counts[0] * copy.counts[1])});
}

void AbstractDevice::copy_out(void* host, const void*, int64_t bytes) {
  counters().copy(bytes);
  counters().wait();
  if (bytes > 0) std::memset(host, 0, static_cast<size_t>(bytes));
}

}  // namespace quintet
