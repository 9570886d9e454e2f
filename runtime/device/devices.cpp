#include "runtime/device/devices.h"

#include "kernels/cpu/instruction_set.h"
#include "runtime/device/gpu_ops.h"

namespace quintet {
namespace {

int number_after(const std::string& name, size_t prefix, int fallback) {
  if (name.size() == prefix) return fallback;
  const std::string digits = name.substr(prefix + 1);
  QT_CHECK(name[prefix] == ':' && !digits.empty() && digits.size() < 4 &&
               digits.find_first_not_of("0123456789") == std::string::npos,
           "--device={}: expected cpu, cuda, cuda:NUMBER or auto", name);
  return std::stoi(digits);
}

/// Lives until the process ends, as tensors may.
[[maybe_unused]] Device& keep(std::unique_ptr<Device> device) { return *device.release(); }

Device& open(const std::string& name) {
  if (name == "cpu") return Device::cpu();
#ifdef QUINTET_WITH_CUDA
  if (name.starts_with("cuda") || name == "auto") {
    std::unique_ptr<Device> gpu;
    try {
      gpu = cuda::open_device(name == "auto" ? 0 : number_after(name, 4, 0));
    } catch (const Error& error) {
      if (name != "auto" || error.code() != ExitCode::kEnvironment) throw;
      return Device::cpu();
    }
    cuda::load_libraries();  // a GPU that answers and cannot compute is an error with auto, too
    return keep(std::move(gpu));
  }
#else
  QT_CHECK_AS(ExitCode::kEnvironment, !name.starts_with("cuda"),
              "--device={}: this build has no CUDA ({}); use --device=cpu", name,
              QUINTET_CUDA_STATUS);
  if (name == "auto") return Device::cpu();
#endif
#ifdef QUINTET_WITH_EMULATOR
  if (name.starts_with("emulated")) return keep(emulated::open_device(number_after(name, 8, 90)));
#endif
  number_after(name, 0, 0);  // throws
  return Device::cpu();
}

}  // namespace

Device& use_device(const std::string& name) {
  Device& device = open(name);
  Device::use(device);
  return device;
}

std::string arithmetic_of(const Device& device) {
  if (device.is_cpu()) return "CPU with " + cpu::instruction_set();
  std::string text = device.description();
#ifdef QUINTET_WITH_CUDA
  if (device.kind() == "cuda") text += ", " + cuda::versions();
#endif
  return text;
}

}  // namespace quintet
