// The good inputs of a target, as files in the first folder that libFuzzer is given, where it keeps
// what it finds.
#include <filesystem>
#include <fstream>

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  for (int i = 1; i < *count; ++i) {
    const std::filesystem::path folder = (*arguments)[i];
    if (!std::filesystem::is_directory(folder)) continue;
    int number = 0;
    for (const std::string& seed : quintet::testing::fuzz_seeds())
      std::ofstream(folder / ("seed-" + std::to_string(++number)), std::ios::binary) << seed;
    break;
  }
  return 0;
}
