#pragma once
// Errors that tests expect.

#include <gtest/gtest.h>

#include <string>

#include "runtime/base/check.h"

namespace quintet {

/// The message of the usage error that `body` throws.
template <typename F>
std::string refusal(F body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

}  // namespace quintet
