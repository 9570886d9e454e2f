// tokenizer.json of a Hugging Face directory, as T5's own tokenizer reads it and as the tokenizers library
// does, and a text through both.

#include <unistd.h>

#include <fstream>

#include "data/huggingface/huggingface_vocabulary.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

/// Both directories' tokenizer.json: a disk waits for each file that is written anew.
testing::MemoryFile& input() {
  static testing::MemoryFile file;
  return file;
}

/// Two directories of this process, which differ in tokenizer_config.json.
const std::vector<fs::path>& folders() {
  static const std::vector<fs::path> made = [] {
    std::vector<fs::path> all;
    for (const char* name : {"T5Tokenizer", "PreTrainedTokenizerFast"}) {
      all.push_back(fs::temp_directory_path() / fmt::format("fuzz-{}-{}", getpid(), name));
      fs::remove_all(all.back());
      fs::create_directories(all.back());
      fs::create_symlink(input().path(), all.back() / "tokenizer.json");
      std::ofstream(all.back() / "tokenizer_config.json")
          << fmt::format(R"({{"tokenizer_class": "{}", "extra_ids": 2}})", name);
    }
    return all;
  }();
  return made;
}

constexpr const char* kText = "a  bé <x>\te\xcc\x81 <extra_id_0></s> 12";

}  // namespace

std::vector<std::string> testing::fuzz_seeds() {
  return {
      R"({"added_tokens": [{"id": 1, "content": "</s>", "special": true, "normalized": false},
 {"id": 7, "content": "<x>", "lstrip": true, "rstrip": true, "single_word": true, "normalized": true}],
 "normalizer": {"type": "Sequence", "normalizers": [
  {"type": "Precompiled", "precompiled_charsmap": "CAAAAAAEAABhAQAAYQBiAA=="},
  {"type": "Strip", "strip_left": true, "strip_right": true},
  {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}, {"type": "NFKC"}]},
 "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
  {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true}]},
 "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}]},
 "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
  {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
 "model": {"type": "Unigram", "unk_id": 2, "byte_fallback": true,
  "vocab": [["<pad>", 0], ["</s>", 0], ["<unk>", 0], ["▁", -1.5], ["a", -2], ["▁b", -2.5], ["<0xC3>", -3]]}})",
      R"({"added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁",
 "add_prefix_space": true}, "decoder": {"type": "Metaspace", "replacement": "▁"},
 "model": {"unk_id": 0, "vocab": [["a", -1], ["▁", -1], ["12", -0.5]]}})"};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  input().set(data, size);
  for (const auto& folder : folders())
    testing::allow_errors([&] {
      const data::HuggingFaceVocabulary vocabulary(folder.string());
      vocabulary.decode(vocabulary.encode_input(kText));
    });
  return 0;
}
