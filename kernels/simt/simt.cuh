#pragma once
// The device-language layer: the only CUDA include of a kernel. The same source is compiled by nvcc
// (quintet::cuda) and by g++ against an emulator on the CPU (quintet::emulated).
//
//   namespace quintet::QT_GPU {
//   __global__ void reverse(float* x, int n) {
//     auto tile = simt::shared<float>(0, n);
//     tile[threadIdx.x] = x[threadIdx.x];
//     __syncthreads();
//     x[threadIdx.x] = tile[n - 1 - threadIdx.x];
//   }
//   void reverse_gpu(float* x, int n, Stream stream) {
//     simt::launch(reverse, {.grid = 1, .block = n, .shared = n * 4, .stream = stream}, x, n);
//   }
//   }
//
// Dynamic shared memory only, and never a call of asm, <<<>>> or the CUDA runtime in a kernel file.
// What the emulator checks and how its schedule is seeded: emulator/emulator.h.

#include "kernels/simt/language.cuh"

// clang-format off
#include "kernels/simt/launch.cuh"      // Launch, launch(), device()
#include "kernels/simt/types.cuh"       // bf16, half, packed pairs, float32 <-> tf32
#include "kernels/simt/math.cuh"        // exp2_approx, tanh_approx, rsqrt_approx
#include "kernels/simt/shared.cuh"      // shared<T>(), Shared<T>, shared_address()
#include "kernels/simt/async_copy.cuh"  // cp.async
#include "kernels/simt/matrix.cuh"      // ldmatrix, stmatrix, mma.sync
#include "kernels/simt/barrier.cuh"     // named barriers, mbarrier, fences, setmaxnreg
#include "kernels/simt/cluster.cuh"     // clusters, distributed shared memory, grid barrier
#include "kernels/simt/dependent.cuh"   // kernels that begin before the one before has ended
#include "kernels/simt/tma.cuh"         // tensor maps, tensor and bulk copies
#include "kernels/simt/wgmma.cuh"       // warpgroup matrix products
// clang-format on
