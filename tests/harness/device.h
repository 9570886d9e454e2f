#pragma once
// Include in a test program to run it on the device that QUINTET_TEST_DEVICE names ("emulated",
// "emulated:80", "cuda"); without the variable, on the CPU. A device that does not answer skips all.

#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/device/devices.h"

namespace quintet::testing {

class DeviceEnvironment : public ::testing::Environment {
  void SetUp() override {
    const char* name = std::getenv("QUINTET_TEST_DEVICE");
    if (name == nullptr) return;
    try {
      use_device(name);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kEnvironment) throw;
      GTEST_SKIP() << error.what();
    }
  }
};

inline const auto* const kDeviceEnvironment =
    ::testing::AddGlobalTestEnvironment(new DeviceEnvironment);

}  // namespace quintet::testing
