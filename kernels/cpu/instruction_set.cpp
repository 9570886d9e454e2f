#include "kernels/cpu/instruction_set.h"

#include <dnnl.h>
#include <fmt/format.h>
#include <hwy/targets.h>

#include "kernels/cpu/amx.h"

namespace quintet::cpu {

std::string instruction_set() {
  const int64_t targets = hwy::SupportedTargets();
  const dnnl_version_t* dnnl = dnnl_version();
  return fmt::format("{}{}, oneDNN {}.{}.{} with its instruction set {:#x}",
                     hwy::TargetName(targets & -targets),  // the best has the lowest bit
                     amx::source() == amx::Source::cpu ? "+AMX" : "", dnnl->major, dnnl->minor,
                     dnnl->patch, static_cast<unsigned>(dnnl_get_effective_cpu_isa()));
}

}  // namespace quintet::cpu
