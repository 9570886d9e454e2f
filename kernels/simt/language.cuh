#pragma once
// CUDA's own language for both compilers. Under nvcc this is the runtime header; under g++ (the
// generated wrappers define QUINTET_EMULATE) the same names come from emulator/language.h.
//
//   QT_GPU     the namespace of all device code: quintet::cuda or quintet::emulated
//   QT_SM90A   1 where wgmma, TMA and setmaxnreg may be used: the sm_90a pass, and the emulator

#include <cstddef>
#include <cstdint>

#include "kernels/simt/target.h"

#if defined(QUINTET_EMULATE) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define QT_SM90A 1
#else
#define QT_SM90A 0
#endif

#ifdef QUINTET_EMULATE
#include "kernels/simt/emulator/language.h"
#else
#include <cuda_runtime.h>
// A function of this layer: inlined, on the device only.
#define QT_DEVICE static __device__ __forceinline__
#endif
