#pragma once
// A fuzz target reads bytes from outside with one of our readers and lets errors of type
// quintet::Error pass: anything else (another exception, a crash, a hang, much memory) is a finding.
//
// One file a target defines both functions. With -DQUINTET_FUZZ=ON and clang it becomes
// `fuzz_<name>` under libFuzzer; always it becomes `fuzz_<name>_test`, which runs the seeds,
// tests/corpus/<name>/* and mutations of them that are the same every time.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace quintet::testing {

/// Good inputs to start from.
std::vector<std::string> fuzz_seeds();

/// Runs `read`; an error that says what is wrong with the input is what a reader may answer.
template <typename Read>
void allow_errors(const Read& read) {
  try {
    read();
  } catch (const Bug&) {
    throw;
  } catch (const Error&) {
  }
}

}  // namespace quintet::testing
