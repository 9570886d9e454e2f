#pragma once
// A folder of its own for each test, and small states to save in it.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "runtime/base/formats/json.h"

namespace quintet::testing {

class Scratch {
 public:
  /// In memory where there is such a folder: these tests write thousands of files. The name has a
  /// blank and letters beyond ASCII: every test then covers such paths.
  Scratch() {
    const std::filesystem::path root = std::filesystem::is_directory("/dev/shm")
                                           ? "/dev/shm"
                                           : std::filesystem::temp_directory_path();
    std::string name = (root / "quintet çp-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp: " + name);
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

template <typename T>
HostArray filled(std::vector<int64_t> shape, int seed) {
  HostArray array(dtype_of<T>(), std::move(shape));
  uint64_t state = static_cast<uint64_t>(seed) * 0x9e3779b97f4a7c15u + 1;
  for (std::byte& byte : array.bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return array;
}

/// Every dtype, scalars, empty and odd shapes, one tensor of several chunks. Random bits; where
/// `finite`, the highest bit of floats' exponents is 0.
inline HostArrays small_state(int seed = 1, bool finite = true) {
  HostArrays state;
  state["target/encoder/layers_0/mlp/wi_0/kernel"] = filled<float>({7, 13}, seed);
  state["target/decoder/logits_dense/kernel"] = filled<float>({33, 65}, seed + 1);
  state["target/token_embedder/embedding"] = filled<bfloat16>({5, 3, 2}, seed + 2);
  state["state/step"] = filled<int32_t>({}, seed + 3);
  state["state/empty"] = filled<float>({0, 4}, seed + 4);
  state["state/double"] = filled<double>({3}, seed + 5);
  state["state/long"] = filled<int64_t>({2, 1}, seed + 6);
  state["state/bytes"] = filled<uint8_t>({11}, seed + 7);
  state["state/signed"] = filled<int8_t>({1}, seed + 8);
  state["state/unsigned"] = filled<uint32_t>({2, 2}, seed + 9);
  state["state/half"] = filled<bfloat16>({4}, seed + 10);
  state["state/half"].dtype = DType::f16;
  state["state/flags"] = HostArray(DType::boolean, {3});
  state["state/flags"].bytes[1] = std::byte{1};
  for (auto& [name, array] : state)
    if (finite && is_floating(array.dtype))
      for (auto i = static_cast<size_t>(size_of(array.dtype)) - 1; i < array.bytes.size();
           i += static_cast<size_t>(size_of(array.dtype)))
        array.bytes[i] &= std::byte{0xbf};
  return state;
}

inline std::vector<TensorSlice> slices_of(const HostArrays& state) {
  std::vector<TensorSlice> slices;
  for (const auto& [name, array] : state) slices.push_back(whole_slice(name, array));
  return slices;
}

inline ::testing::AssertionResult same_state(const HostArrays& got, const HostArrays& want) {
  if (const auto lines = compare_tensors(got, want); !lines.empty())
    return ::testing::AssertionFailure() << lines[0];
  for (const auto& [name, array] : want)
    if (got.at(name).bytes != array.bytes)
      return ::testing::AssertionFailure() << name << " has other values";
  return ::testing::AssertionSuccess();
}

inline void write_bytes(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(out.good()) << file;
}

/// Runs `work`, expects an Error of this code, returns its message.
template <typename Work>
std::string error_of(ExitCode code, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

}  // namespace quintet::testing
