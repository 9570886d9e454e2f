// Checked JSON: whatever parses can be walked with every accessor.

#include "runtime/base/formats/json.h"
#include "tests/fuzz/target.h"

namespace quintet {
namespace {

void walk(const Json& json) {
  testing::allow_errors([&] { (void)json.as_int(); });
  testing::allow_errors([&] { (void)json.as_double(); });
  testing::allow_errors([&] { (void)json.as_bool(); });
  testing::allow_errors([&] { (void)json.as_string(); });
  testing::allow_errors([&] { (void)json.as_ints(); });
  testing::allow_errors([&] { (void)json["a"]; });
  testing::allow_errors([&] { (void)json[size_t{1}]; });
  testing::allow_errors([&] {
    for (const Json& item : json.items()) walk(item);
  });
  testing::allow_errors([&] {
    for (const auto& [key, value] : json.members()) walk(value);
  });
}

}  // namespace

std::vector<std::string> testing::fuzz_seeds() {
  return {R"({"a":[1,-2.5,3e8,true,null,"x\u00e9\n"],"b":{"c":{"a":[[],{}]}},"d":"NaN"})",
          "[1,2,3]", "9223372036854775807"};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quintet::testing::allow_errors([&] {
    quintet::walk(quintet::Json::parse({reinterpret_cast<const char*>(data), size}, "input"));
  });
  return 0;
}
