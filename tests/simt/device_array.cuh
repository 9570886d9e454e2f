#pragma once
// An array in device memory for tests, and rounded inputs.

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/simt/simt.cuh"
#include "tests/simt/case.h"

namespace quintet::QT_GPU {

#ifdef QUINTET_EMULATE
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& from) : size_(from.size()) {
    data_ = static_cast<T*>(::operator new (size_ * sizeof(T), std::align_val_t{256}));
    std::memcpy(data_, from.data(), size_ * sizeof(T));
  }
  ~DeviceArray() { ::operator delete (data_, std::align_val_t{256}); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* get() const { return data_; }
  std::vector<T> host() const { return {data_, data_ + size_}; }

 private:
  size_t size_;
  T* data_;
};
#else
inline void cuda_must(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& from) : size_(from.size()) {
    cuda_must(cudaMalloc(&data_, size_ * sizeof(T)));
    cuda_must(cudaMemcpy(data_, from.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* get() const { return data_; }
  std::vector<T> host() const {
    std::vector<T> out(size_);
    cuda_must(cudaDeviceSynchronize());
    cuda_must(cudaMemcpy(out.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }

 private:
  size_t size_;
  T* data_ = nullptr;
};
#endif

/// n results, NaN until written.
inline DeviceArray<float> results(size_t n) {
  return DeviceArray<float>(std::vector<float>(n, std::nanf("")));
}

/// n values in [-1, 1) of a small generator; multiples of 2^-7, so bf16 and half hold them exactly.
inline std::vector<float> values(size_t n, uint32_t seed) {
  std::vector<float> out(n);
  uint32_t state = seed * 2654435761u + 12345u;
  for (float& x : out) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<int>(state >> 24) - 128) / 128.0f;
  }
  return out;
}

inline std::vector<simt::bf16> to_bf16(const std::vector<float>& x) {
  std::vector<simt::bf16> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &x[i], 4);
    out[i].bits = static_cast<uint16_t>(bits >> 16);  // exact values only
  }
  return out;
}

/// c [m, n] = a [m, k] b [k, n], in double.
inline std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b, int m,
                                  int n, int k) {
  std::vector<float> c(static_cast<size_t>(m) * n);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l) sum += double{a[i * k + l]} * b[l * n + j];
      c[i * n + j] = static_cast<float>(sum);
    }
  }
  return c;
}

inline std::vector<float> transposed(const std::vector<float>& a, int rows, int columns) {
  std::vector<float> out(a.size());
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) out[j * rows + i] = a[i * columns + j];
  }
  return out;
}

}  // namespace quintet::QT_GPU
