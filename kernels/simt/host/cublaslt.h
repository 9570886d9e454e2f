#pragma once
// cuBLASLt's functions, from the toolkit of the machine: linked, it would keep programs from
// starting where there is none, and it is too large (half a GB) to be carried along.
//
//   cublaslt().Create(&handle);

#include <cublasLt.h>

#include "runtime/base/shared_library.h"

namespace quintet::cuda::simt {

struct CublasLt {
  const SharedLibrary library;
  QT_LOADED(cublasLt, Create)
  QT_LOADED(cublasLt, GetVersion)
  QT_LOADED(cublasLt, Matmul)
  QT_LOADED(cublasLt, MatmulAlgoCheck)
  QT_LOADED(cublasLt, MatmulAlgoGetHeuristic)
  QT_LOADED(cublasLt, MatmulDescCreate)
  QT_LOADED(cublasLt, MatmulDescDestroy)
  QT_LOADED(cublasLt, MatmulDescSetAttribute)
  QT_LOADED(cublasLt, MatmulPreferenceCreate)
  QT_LOADED(cublasLt, MatmulPreferenceDestroy)
  QT_LOADED(cublasLt, MatmulPreferenceSetAttribute)
  QT_LOADED(cublasLt, MatrixLayoutCreate)
  QT_LOADED(cublasLt, MatrixLayoutDestroy)
  QT_LOADED(cublasLt, MatrixLayoutSetAttribute)
};

/// Loaded by the first call. Throws Error(kEnvironment) where it is not installed.
const CublasLt& cublaslt();

}  // namespace quintet::cuda::simt
