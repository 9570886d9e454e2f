// TFRecord files: framing, checksums, and finding the next good record after damage.

#include "data/examples/data_source.h"
#include "data/examples/tf_example.h"
#include "runtime/base/formats/tfrecord.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"

namespace quintet {
namespace {

using namespace quintet::data;  // every name here is of that folder

std::string record_of(int n) {
  Example example;
  example.set("ids", Tokens{n, -n});
  example.set("text", std::string("abc"));
  return serialize_tf_example(example);
}

/// Bad records left out: those that are read must be whole.
void read_all(const std::string& path, OnBadExample on_bad_example) {
  testing::allow_errors([&] {
    const TFExampleDataSource source({{"train", {path}}}, {}, {.on_bad_example = on_bad_example});
    const auto reader = source.open("train");
    Example example;
    for (int64_t i = 0; i < *reader->size(); ++i)
      testing::allow_errors([&] { reader->read(i, example); });
  });
}

}  // namespace

std::vector<std::string> testing::fuzz_seeds() {
  std::string one, many;
  append_tfrecord(one, record_of(5));
  for (int n = 0; n < 20; ++n) append_tfrecord(many, record_of(n * n));
  std::string damaged = many;
  damaged[200] ^= 8;
  std::string empty_record;
  append_tfrecord(empty_record, "");
  return {one, many, damaged, empty_record, many.substr(0, many.size() - 7)};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const quintet::testing::MemoryFile file(data, size);
  quintet::read_all(file.path(), quintet::data::OnBadExample::fail);
  quintet::read_all(file.path(), quintet::data::OnBadExample::skip);
  return 0;
}
