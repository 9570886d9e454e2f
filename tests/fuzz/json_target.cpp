// Checked JSON: whatever parses can be walked with every accessor.

#include "runtime/base/json.h"

#include "runtime/base/check.h"
#include "tests/fuzz/target.h"

namespace quintet {
namespace {

template <typename Read>
void attempt(const Read& read) {
  try {
    read();
  } catch (const Bug&) {
    throw;
  } catch (const Error&) {
  }
}

void walk(const Json& json) {
  attempt([&] { (void)json.as_int(); });
  attempt([&] { (void)json.as_double(); });
  attempt([&] { (void)json.as_bool(); });
  attempt([&] { (void)json.as_string(); });
  attempt([&] { (void)json.as_ints(); });
  attempt([&] { (void)json["a"]; });
  attempt([&] { (void)json[size_t{1}]; });
  attempt([&] { for (const Json& item : json.items()) walk(item); });
  attempt([&] { for (const auto& [key, value] : json.members()) walk(value); });
}

}  // namespace

std::vector<std::string> testing::fuzz_seeds() {
  return {R"({"a":[1,-2.5,3e8,true,null,"x\u00e9\n"],"b":{"c":{"a":[[],{}]}},"d":"NaN"})", "[1,2,3]",
          "9223372036854775807"};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quintet::attempt([&] {
    quintet::walk(quintet::Json::parse({reinterpret_cast<const char*>(data), size}, "input"));
  });
  return 0;
}
