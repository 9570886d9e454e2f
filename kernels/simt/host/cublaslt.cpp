#include "kernels/simt/host/cublaslt.h"

#include <string>

namespace quintet::cuda::simt {

const CublasLt& cublaslt() {
  static const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  static const CublasLt loaded{
      SharedLibrary({.name = name.c_str(),
                     .variable = "QUINTET_CUBLASLT",
                     .purpose = "--device=cuda: matrix products are cuBLASLt's",
                     .remedy = "install the CUDA toolkit's libraries, set CUDA_HOME to where they "
                               "are, use --device=cpu"})};
  return loaded;
}

}  // namespace quintet::cuda::simt
