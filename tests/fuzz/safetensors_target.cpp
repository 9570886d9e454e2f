// A safetensors file: the header as text before any amount of data, and the whole input as a file.

#include <unistd.h>

#include <cstring>
#include <fstream>

#include "checkpoint/safetensors.h"
#include "runtime/base/formats/json.h"
#include "tests/fuzz/target.h"

namespace quintet {
namespace {

std::filesystem::path scratch_file() {
  const std::string name = fmt::format("quintet-fuzz-{}.safetensors", ::getpid());
  return std::filesystem::is_directory("/dev/shm") ? std::filesystem::path("/dev/shm") / name
                                                   : std::filesystem::temp_directory_path() / name;
}

}  // namespace

std::vector<std::string> testing::fuzz_seeds() {
  HostArrays arrays;
  arrays["decoder/kernel"] = HostArray(DType::f32, {3, 5});
  arrays["decoder/bias"] = HostArray(DType::bf16, {7});
  arrays["step"] = HostArray(DType::i32, {});
  const auto file = scratch_file();
  write_safetensors(file, arrays, {{"step", "3"}});
  const std::string whole = read_file(file);
  std::filesystem::remove(file);
  return {whole,
          R"(        {"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
          R"("b":{"dtype":"U8","shape":[3,1],"data_offsets":[8,11]},"__metadata__":{"k":"v"}})"};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (size >= 8)
    for (const int64_t bytes : {int64_t{0}, int64_t{11}, int64_t{1} << 40})
      testing::allow_errors([&] { parse_safetensors_header(text.substr(8), bytes, "input"); });
  const auto file = scratch_file();
  std::ofstream(file, std::ios::binary | std::ios::trunc)
      .write(text.data(), static_cast<std::streamsize>(size));
  testing::allow_errors([&] { read_safetensors_file(file); });
  // The same with the length that belongs to a header that ends with the first line of data.
  if (size >= 8) {
    std::string right = text;
    const uint64_t header = std::min<uint64_t>(size - 8, text.rfind('}') + 1 - 8);
    std::memcpy(right.data(), &header, 8);
    std::ofstream(file, std::ios::binary | std::ios::trunc)
        .write(right.data(), static_cast<std::streamsize>(size));
    testing::allow_errors([&] { read_safetensors_file(file); });
  }
  std::filesystem::remove(file);
  return 0;
}
