// spiece.model of a Hugging Face directory, which our own reader takes apart, and a text there and back.

#include <unistd.h>

#include <fstream>

#include "data/huggingface/huggingface_vocabulary.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

/// The directory's spiece.model: a disk waits for each file that is written anew.
testing::MemoryFile& input() {
  static testing::MemoryFile file;
  return file;
}

const fs::path& folder() {
  static const fs::path made = [] {
    const fs::path path = fs::temp_directory_path() / fmt::format("fuzz-{}-spiece", getpid());
    fs::remove_all(path);
    fs::create_directories(path);
    fs::create_symlink(input().path(), path / "spiece.model");
    std::ofstream(path / "tokenizer_config.json")
        << R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 2})";
    return path;
  }();
  return made;
}

/// A field of bytes.
std::string field(char number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

/// A piece: its text, a score of -1, its type.
std::string piece(const std::string& text, char type) {
  return field(1, field(1, text) + std::string("\x1d\x00\x00\x80\xbf\x18", 6) + type);
}

}  // namespace

std::vector<std::string> testing::fuzz_seeds() {
  constexpr char kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4;
  return {piece("<pad>", kControl) + piece("</s>", kControl) + piece("<unk>", kUnknown) +
          piece("▁", kNormal) + piece("a", kNormal) + piece("▁b", kNormal) +
          piece("<x>", kUserDefined)};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  input().set(data, size);
  testing::allow_errors([&] {
    const data::HuggingFaceVocabulary vocabulary(folder().string());
    vocabulary.decode(vocabulary.encode_input("a  bé <x>\te\xcc\x81 <extra_id_0></s> 12"));
  });
  return 0;
}
