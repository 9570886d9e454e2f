#include "apps/process/version.h"

#include <dnnl_version.h>
#include <fmt/format.h>

namespace quintet {

const char* const kVersion = QUINTET_VERSION;

std::string version_text(const std::string& commit) {
  return fmt::format("quintet {} ({}CUDA: {})\ncompiler: {}\noneDNN: {}.{}.{}", kVersion,
                     commit.empty() ? "" : commit + ", ", QUINTET_CUDA_STATUS, __VERSION__,
                     DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH);
}

}  // namespace quintet
