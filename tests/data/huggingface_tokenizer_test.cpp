// Tokenizers of Hugging Face directories against what transformers' AutoTokenizer says
// (tests/oracles/gen_huggingface_tokenizers.py).

#include "data/huggingface/huggingface_vocabulary.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

using quintet::testing::fixture_folders;

Tokens tokens_of(const Json& json) {
  const std::vector<int64_t> ids = json.as_ints();
  return {ids.begin(), ids.end()};
}

TEST(HuggingFaceTokenizer, IdsAreTransformers) {
  const auto folders = fixture_folders("huggingface_tokenizers");
  ASSERT_FALSE(folders.empty());
  for (const auto& folder : folders) {
    SCOPED_TRACE(folder);
    const HuggingFaceVocabulary vocabulary(folder.string());
    const Json expected = Json::read(folder / "expected.json");
    EXPECT_EQ(vocabulary.vocab_size(), expected["size"].as_int());
    const std::vector<std::string> texts = expected["texts"].as_strings();
    for (size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(vocabulary.encode_input(texts[i]), tokens_of(expected["ids"][i])) << texts[i];
  }
}

TEST(HuggingFaceTokenizer, TextsAreTransformersAlsoTokenByToken) {
  for (const auto& folder : fixture_folders("huggingface_tokenizers")) {
    SCOPED_TRACE(folder);
    const HuggingFaceVocabulary vocabulary(folder.string());
    const Json expected = Json::read(folder / "expected.json");
    for (size_t i = 0; i < expected["decode_ids"].size(); ++i) {
      const Tokens ids = tokens_of(expected["decode_ids"][i]);
      const std::string text = expected["decoded"][i].as_string();
      EXPECT_EQ(vocabulary.decode(ids), text);
      DecodeState state;
      std::string streamed;
      for (const int32_t id : ids) vocabulary.decode_next(id, state, streamed);
      EXPECT_EQ(streamed + vocabulary.decode_open(state), text);
    }
  }
}

}  // namespace
}  // namespace quintet::data
