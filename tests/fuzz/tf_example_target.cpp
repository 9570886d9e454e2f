// tf.Example: any bytes behind a good checksum. What is read is written and read again, and is the same.

#include "data/examples/tf_example.h"
#include "tests/fuzz/target.h"

namespace quintet {
namespace {

using namespace quintet::data;  // every name here is of that folder

const ExampleParser& listed() {
  static const ExampleParser parser({{"ids", "int32", {-1}},
                                     {"text", "string", {}},
                                     {"score", "float32", {}},
                                     {"pair", "int64", {2}},
                                     {"answers", "bytes", {-1}}});
  return parser;
}

}  // namespace

std::vector<std::string> testing::fuzz_seeds() {
  Example example;
  example.set("ids", Tokens{1, 300, -1, 70'000});
  example.set("text", std::string("caf\u00e9"));
  example.set("score", 0.25);
  example.set("pair", Tokens{1, 2});
  example.set("answers", std::vector<std::string>{"a", "", "bc"});
  // As old writers did: numbers in fields of their own.
  const std::string unpacked("\x0a\x0f\x0a\x0d\x0a\x03ids\x12\x06\x1a\x04\x08\x01\x08\x02", 17);
  return {serialize_tf_example(example), serialize_tf_example({}), unpacked};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  const std::string_view record(reinterpret_cast<const char*>(data), size);
  testing::allow_errors([&] {
    data::Example example;
    listed()(record, example);
  });
  testing::allow_errors([&] {
    data::Example first, second;
    data::ExampleParser({})(record, first);
    const std::string written = data::serialize_tf_example(first);
    data::ExampleParser({})(written, second);
    QT_ASSERT(data::serialize_tf_example(second) == written);
  });
  return 0;
}
