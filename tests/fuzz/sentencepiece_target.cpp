// SentencePiece model files: damaged ones are errors, those that load encode and decode anything.

#include "data/vocabularies/vocabulary.h"
#include "runtime/base/formats/json.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

void use(const std::string& path) {
  testing::allow_errors([&] {
    const data::SentencePieceVocabulary vocabulary(path, 3);
    for (const char* text : {"", "hello <extra_id_1> world", "\xF0\x9F\x99\x82 12\t\xE2\x96\x81"}) {
      const data::Tokens ids = vocabulary.encode(text);
      (void)vocabulary.decode(ids);
    }
    (void)vocabulary.decode(data::Tokens{-1, 0, 2, 3, 1 << 30, vocabulary.vocab_size() - 1, 1, 4});
  });
}

}  // namespace

std::vector<std::string> testing::fuzz_seeds() {
  std::vector<std::string> models;
  const auto folder = fixture_root() / "seqio" / "vocab";
  for (const char* name : {"bpe_nofallback.model", "unigram_bytefallback.model"})
    if (std::filesystem::exists(folder / name)) models.push_back(read_file(folder / name));
  if (models.empty()) models.push_back("no fixtures, no models");
  return models;
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const quintet::testing::MemoryFile file(data, size);
  quintet::use(file.path());
  return 0;
}
