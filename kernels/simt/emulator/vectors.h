#pragma once
// CUDA's small vector types, for g++.

#include <cstdint>

namespace quintet::emulated {

#define QT_VECTOR_TYPES(name, T, a2, a4)                                \
  struct name##1 {                                                      \
    T x;                                                                \
  };                                                                    \
  struct alignas(a2) name##2 {                                          \
    T x, y;                                                             \
  };                                                                    \
  struct name##3 {                                                      \
    T x, y, z;                                                          \
  };                                                                    \
  struct alignas(a4) name##4 {                                          \
    T x, y, z, w;                                                       \
  };                                                                    \
  constexpr name##1 make_##name##1(T x) { return {x}; }                 \
  constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

QT_VECTOR_TYPES(float, float, 8, 16)
QT_VECTOR_TYPES(double, double, 16, 16)
QT_VECTOR_TYPES(int, int, 8, 16)
QT_VECTOR_TYPES(uint, unsigned, 8, 16)
QT_VECTOR_TYPES(short, int16_t, 4, 8)
QT_VECTOR_TYPES(ushort, uint16_t, 4, 8)
QT_VECTOR_TYPES(char, int8_t, 2, 4)
QT_VECTOR_TYPES(uchar, uint8_t, 2, 4)
QT_VECTOR_TYPES(longlong, long long, 16, 16)
QT_VECTOR_TYPES(ulonglong, unsigned long long, 16, 16)
#undef QT_VECTOR_TYPES

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

}  // namespace quintet::emulated
