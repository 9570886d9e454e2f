#include "apps/process/version.h"

#include <dnnl_version.h>
#include <fmt/format.h>

namespace quintet {

const char* const kVersion = QUINTET_VERSION;

std::string version_text() {
  return fmt::format("quintet {}\ncompiler: {}\noneDNN: {}.{}.{}\nCUDA: {}", kVersion, __VERSION__,
                     DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH,
                     QUINTET_CUDA_STATUS);
}

}  // namespace quintet
