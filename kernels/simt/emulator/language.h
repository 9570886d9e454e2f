#pragma once
// CUDA's language for g++: qualifiers, indices, barriers, shuffles, votes, atomics, intrinsics.
// Everything is in quintet::emulated, where emulated kernels live. Sources of meaning: CUDA C++
// Programming Guide, "C++ Language Extensions"; CUDA Math API, "Intrinsics".

#include "kernels/simt/emulator/engine.h"
#include "kernels/simt/emulator/vectors.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __constant__ static const
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
#define QT_DEVICE inline

#define threadIdx (::quintet::emulated::simt::emulator::self->index)
#define blockIdx (::quintet::emulated::simt::emulator::self->block->index)
#define blockDim (::quintet::emulated::simt::emulator::self->block->shape->block)
#define gridDim (::quintet::emulated::simt::emulator::self->block->shape->grid)
#define warpSize 32

#include "kernels/simt/emulator/intrinsics.h"
#include "kernels/simt/emulator/warp.h"
