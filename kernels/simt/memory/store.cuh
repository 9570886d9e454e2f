#pragma once
// A store of 16 bytes to global memory that stays one instruction: nvcc 13.0 breaks some stores of a uint4 into four of 4 bytes,
// each of which touches as many sectors. PTX ISA, "Data Movement and Conversion Instructions: st".

#include "kernels/simt/language.cuh"

namespace quintet::QT_GPU::simt {

/// `to`: a multiple of 16, in global memory.
QT_DEVICE void store_16(void* to, const uint32_t (&words)[4]) {
#ifdef QUINTET_EMULATE
  __builtin_memcpy(to, words, sizeof words);
#else
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
#endif
}

}  // namespace quintet::QT_GPU::simt
