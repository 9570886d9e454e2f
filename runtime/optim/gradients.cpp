#include "runtime/optim/gradients.h"

#include <cmath>
#include <cstring>

#include "kernels/gpu/gpu_kernels.h"
#include "kernels/optimizers/elementwise.h"
#include "runtime/optim/blocks.h"

namespace quintet {
namespace {

/// The sum of a block that may have overflowed float32 although every number is finite, in double.
double exact_sum_of_squares(const float* values, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(values[i]) * values[i];
  return total;
}

double block_sum(const float* values, int64_t n) {
  const double sum = cpu::sum_of_squares_block(n, values);
  return std::isfinite(sum) ? sum : exact_sum_of_squares(values, n);
}

/// Sum of squares of each gradient, by the CPU.
std::vector<double> squares_on_cpu(std::span<const ParamSlot> params) {
  std::vector<int64_t> sizes;
  for (const ParamSlot& slot : params)
    sizes.push_back(slot.grad.absent() ? 0 : slot.grad.elements());
  const auto blocks = cut_into_blocks(sizes);
  std::vector<double> sums(blocks.size());
  for_each_block(blocks.size(), [&](size_t i) {
    const auto [array, begin, end] = blocks[i];
    sums[i] = block_sum(params[static_cast<size_t>(array)].grad.data<float>() + begin, end - begin);
  });
  std::vector<double> squares(params.size());
  for (size_t i = 0; i < blocks.size(); ++i)
    squares[static_cast<size_t>(blocks[i].array)] += sums[i];
  return squares;
}

/// Sums of squares and marks from a device, in one copy.
void measure_on(Device& device, std::span<const ParamSlot> params, const int32_t* marks,
                GradientCheck& check) {
  std::vector<View> gradients;
  for (const ParamSlot& slot : params) gradients.push_back(slot.grad);
  const size_t sums = (params.size() + 1) * sizeof(ArrayStatistics);
  const size_t marked = check.marks.size() * sizeof(int32_t);
  std::vector<std::byte> host(sums + marked);
  const Buffer on_device = device.memory().allocate(static_cast<int64_t>(host.size()));
  device.kernels().measure_arrays(gradients, reinterpret_cast<ArrayStatistics*>(on_device.get()),
                                  device.stream());
  if (marked > 0) device.copy(on_device.get() + sums, marks, static_cast<int64_t>(marked));
  device.copy_out(host.data(), on_device.get(), static_cast<int64_t>(host.size()));
  std::vector<ArrayStatistics> statistics(params.size());
  std::memcpy(statistics.data(), host.data(), params.size() * sizeof(ArrayStatistics));
  if (marked > 0) std::memcpy(check.marks.data(), host.data() + sums, marked);
  for (const ArrayStatistics& one : statistics) check.squares.push_back(one.squares);
}

}  // namespace

GradientCheck check_gradients(std::span<const ParamSlot> params, Reducer* reducer,
                              const int32_t* marks) {
  Device& device = Device::current();
  GradientCheck check;
  if (marks != nullptr) check.marks.resize(params.size());
  if (device.is_cpu()) {
    check.squares = squares_on_cpu(params);
    if (marks != nullptr) std::copy_n(marks, params.size(), check.marks.begin());
  } else {
    measure_on(device, params, marks, check);
  }
  Bucket bucket;
  for (size_t i = 0; i < params.size(); ++i)
    bucket.add({&check.squares[i], 1}, params[i].shard_axes());
  bucket.sum(reducer);
  double total = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    total += check.squares[i];
    // Squares of finite floats cannot overflow a double: only a bad number makes the sum bad.
    if (check.all_finite && !std::isfinite(check.squares[i])) {
      check.all_finite = false;
      check.first_bad = params[i].name;
    }
  }
  check.norm = std::sqrt(total);
  return check;
}

double sum_of_squares(const float* values, int64_t n) {
  const auto blocks = cut_into_blocks({n});
  std::vector<double> sums(blocks.size());
  for_each_block(blocks.size(), [&](size_t i) {
    sums[i] = block_sum(values + blocks[i].begin, blocks[i].end - blocks[i].begin);
  });
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

}  // namespace quintet
