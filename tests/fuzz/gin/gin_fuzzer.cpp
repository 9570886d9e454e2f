// libFuzzer target: arbitrary bytes as a gin file. Anything but quintet::Error is a finding.

#include <cstddef>
#include <cstdint>

#include "tests/gin/gin_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const quintet::gin::Registry* registry = [] {
    auto* r = new quintet::gin::Registry;  // lives as long as the process
    quintet::testing::register_oraclelib(*r, "oraclelib");
    return r;
  }();
  quintet::testing::run_gin_input(*registry,
                                  std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
