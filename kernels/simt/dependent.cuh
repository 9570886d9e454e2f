#pragma once
// Kernels of one stream that overlap: the next begins while this one runs, reads what it can (such
// as weights) and waits where it needs this one's results.
//
//   __global__ void kernel(...) {
//     // reads what no kernel before it writes
//     simt::start_next();
//     simt::wait_for_previous();
//     // anything
//   }
//   simt::launch(kernel, {..., .early = true}, ...);
//
// A kernel launched early must call wait_for_previous() in every thread before it writes global
// memory or reads what an earlier kernel wrote; when it returns, all earlier work of the stream is
// done and visible. PTX ISA, "Parallel Synchronization and Communication Instructions:
// griddepcontrol"; nothing below sm_90. The emulator overlaps kernels where their work was recorded,
// and refuses a thread that ends without having waited.

#include "kernels/simt/language.cuh"

#ifdef QUINTET_EMULATE
#include "kernels/simt/emulator/barrier.h"
#endif

namespace quintet::QT_GPU::simt {

/// The next kernel, if launched early, may begin once all blocks have come here or ended.
QT_DEVICE void start_next() {
#if !defined(QUINTET_EMULATE) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
QT_DEVICE void wait_for_previous() {
#ifdef QUINTET_EMULATE
  emulator::wait_for_previous();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace quintet::QT_GPU::simt
