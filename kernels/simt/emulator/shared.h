#pragma once
// Shared memory whose accesses are checked.

#include <concepts>
#include <iterator>
#include <type_traits>

#include "kernels/simt/emulator/engine.h"

namespace quintet::emulated::simt {
namespace emulator {
[[noreturn]] void shared_out_of_bounds(std::ptrdiff_t index, std::ptrdiff_t count, size_t bytes);
void* shared_window(size_t offset, size_t count, size_t element, size_t alignment);
[[noreturn]] void misaligned(const void* p, size_t bytes);
/// What a GPU loads or stores `bytes` at once of; it would stop.
inline void check_alignment(const void* p, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0) misaligned(p, bytes);
}
}  // namespace emulator

/// A pointer into [begin, end) that may go anywhere and is checked where it is followed.
template <typename T>
class Shared {
 public:
  using element_type = T;
  Shared() = default;
  Shared(T* p, T* begin, T* end) : p_(p), begin_(begin), end_(end) {}
  template <typename U>
  requires(std::is_const_v<T>&& std::is_same_v<const U, T>) Shared(const Shared<U>& o)
      : p_(o.get()), begin_(o.begin()), end_(o.end()) {}

  template <std::integral I>
  T& operator[](I i) const {
    return *check(p_ + static_cast<std::ptrdiff_t>(i));
  }
  T& operator*() const { return *check(p_); }
  T* operator->() const { return check(p_); }
  /// The unchecked address, for instructions that check it themselves.
  operator T*() const { return p_; }
  operator const void*() const requires(!std::is_const_v<T>) { return p_; }
  T* get() const { return p_; }
  T* begin() const { return begin_; }
  T* end() const { return end_; }

  template <std::integral I>
  friend Shared operator+(Shared a, I i) {
    a.p_ += static_cast<std::ptrdiff_t>(i);
    return a;
  }
  template <std::integral I>
  friend Shared operator-(Shared a, I i) {
    a.p_ -= static_cast<std::ptrdiff_t>(i);
    return a;
  }
  template <std::integral I>
  Shared& operator+=(I i) {
    p_ += static_cast<std::ptrdiff_t>(i);
    return *this;
  }
  template <std::integral I>
  Shared& operator-=(I i) {
    p_ -= static_cast<std::ptrdiff_t>(i);
    return *this;
  }
  Shared& operator++() { return *this += 1; }
  friend std::ptrdiff_t operator-(const Shared& a, const Shared& b) { return a.p_ - b.p_; }

 private:
  T* check(T* p) const {
    if (p < begin_ || p >= end_) [[unlikely]] {
      emulator::shared_out_of_bounds(p - begin_, end_ - begin_, sizeof(T));
    }
    return p;
  }
  T* p_ = nullptr;
  T* begin_ = nullptr;
  T* end_ = nullptr;
};

template <typename T>
Shared<T> shared(size_t byte_offset, size_t count) {
  T* p = static_cast<T*>(emulator::shared_window(byte_offset, count, sizeof(T), alignof(T)));
  return {p, p, p + count};
}

template <typename U, typename T>
Shared<U> shared_cast(const Shared<T>& p) {
  return {reinterpret_cast<U*>(p.get()), reinterpret_cast<U*>(p.begin()),
          reinterpret_cast<U*>(p.begin()) + (p.end() - p.begin()) * sizeof(T) / sizeof(U)};
}
template <typename U, typename T>
U* shared_cast(T* p) {
  return reinterpret_cast<U*>(p);
}

/// Offset in the block's shared memory: the low bits are those of the device's shared window.
uint32_t shared_address(const void* p);

}  // namespace quintet::emulated::simt
