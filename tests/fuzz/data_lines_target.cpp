// Files of examples: text, TSV, CSV, JSONL, and columns split by a preprocessor. The first byte chooses.

#include "data/examples/data_source.h"
#include "data/preprocessors/text_preprocessors.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"

namespace quintet {
namespace {

using namespace quintet::data;  // every name here is of that folder

DataSourcePtr source_of(uint8_t kind, const std::string& path, const FileOptions& options) {
  const SplitToFiles files = {{"train", {path}}};
  if (kind >= 0xF0)
    return std::make_shared<CsvDataSource>(files, kind % 2 > 0 ? '\t' : ',', kind % 4 < 2, options);
  switch (kind % 4) {
    case 0:
      return std::make_shared<TsvDataSource>(files, std::vector<std::string>{}, options);
    case 1:
      return std::make_shared<JsonlDataSource>(files, std::vector<std::string>{}, options);
    default:
      return std::make_shared<TextLineDataSource>(files, options);
  }
}

void read_all(uint8_t kind, const std::string& path, OnBadExample on_bad_example) {
  testing::allow_errors([&] {
    const auto source = source_of(
        kind, path, {.on_bad_example = on_bad_example, .skip_header_lines = kind % 8 / 4});
    StreamPtr stream = read_stream(source->open("train"), {.shuffle = kind % 16 > 7, .epochs = 1});
    if (kind % 4 == 3) {
      PreprocessTsv columns;
      columns.use_quote_delim = kind % 32 > 15;
      columns.inputs_format = "{0} and {x} or {";
      stream = columns.apply(std::move(stream), {});
    }
    Example example;
    while (stream->next(example)) (void)to_string(example);
  });
}

}  // namespace

std::vector<std::string> testing::fuzz_seeds() {
  return {"1\tone\n2\ttwo\r\n\n3\tthr\u00e9e",
          std::string("\0a\tb\n\"c\td\"\te\n", 13),
          "\x01{\"inputs\": \"a\", \"n\": [1, 2.5], \"s\": [\"x\"], \"t\": true}\n\n{\"inputs\": "
          "null}\n",
          "\x02\xEF\xBB\xBFline\nline \U0001F642\n",
          "\x03x\ty\nz\t\n",
          "\x13\"x\"\"y\t\"\tz\n",
          "\xF0name,text\nAda,\"two\nlines, \"\"quoted\"\"\"\r\n\nBob,\n",
          "\xF3name\ttext\nAda\t\"not a quote\n"};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const quintet::testing::MemoryFile file(data + 1, size - 1);
  quintet::read_all(data[0], file.path(), quintet::data::OnBadExample::fail);
  quintet::read_all(data[0], file.path(), quintet::data::OnBadExample::skip);
  return 0;
}
