#pragma once
// Libraries of the machine that are loaded when they are needed, so that a program starts, and
// works without them, where they are not installed: NCCL, cuBLASLt.
//
//   struct Nccl {
//     const SharedLibrary library{{.name = "libnccl.so.2", .variable = "QUINTET_NCCL", ...}};
//     QT_LOADED(nccl, AllReduce)  // a pointer AllReduce to ncclAllReduce, as its header declares it
//   };

#include <string>

namespace quintet {

class SharedLibrary {
 public:
  struct Description {
    const char* name;      ///< of the file, with the version of its interface
    const char* variable;  ///< of the environment: a path to load instead
    const char* purpose;   ///< "NCCL carries collectives between GPUs"
    const char* remedy;    ///< "install libnccl2"
  };

  /// Loads the file that the variable names or, without it, the first of: what the loader finds,
  /// $CUDA_HOME/lib64, /usr/local/cuda/lib64. It stays loaded until the process ends. Throws
  /// Error(kEnvironment) with the places that were tried and what the loader said of each.
  explicit SharedLibrary(const Description& description);

  /// Throws Error(kEnvironment) naming the file if it has no such function.
  template <typename Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(find(name));
  }
  /// nullptr if the file has no such function.
  template <typename Function>
  Function* function_if_there(const char* name) const {
    return reinterpret_cast<Function*>(look_up(name));
  }

 private:
  void* look_up(const char* name) const;
  void* find(const char* name) const;

  Description description_;
  std::string path_;
  void* handle_ = nullptr;
};

}  // namespace quintet

#define QT_LOADED(prefix, name) \
  decltype(&prefix##name) const name = library.function<decltype(prefix##name)>(#prefix #name);
