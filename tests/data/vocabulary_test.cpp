#include "data/vocabularies/vocabulary.h"

#include "data/tokenizer/tokenizer_trainer.h"
#include "data/vocabularies/codepoint_vocabularies.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/formats/json.h"
#include "tests/data/files.h"
#include "tests/data/sentencepiece_model.pb.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

using testing::contains;
using testing::message_of;

TEST(ByteVocabulary, EveryTextComesBack) {
  const ByteVocabulary vocabulary(100);
  for (const std::string text : {"", "hello", "h\u00e9llo \u4f60\u597d \U0001F642", "\t\n \x01"})
    EXPECT_EQ(vocabulary.decode(vocabulary.encode(text)), text);
}

TEST(ByteVocabulary, DecodingStopsAtTheEndAndDropsWhatIsNotText) {
  const ByteVocabulary vocabulary;
  Tokens ids = vocabulary.encode("ab");
  ids.insert(ids.end(), {1, 'c' + 3});
  EXPECT_EQ(vocabulary.decode(ids), "ab");
  EXPECT_EQ(vocabulary.decode(Tokens{0, 'a' + 3, 2, 300, -5, 'b' + 3}), "ab");
  EXPECT_EQ(vocabulary.decode(Tokens{0xE2 + 3, 0x82 + 3, 'x' + 3}), "x");  // half a character
}

TEST(Vocabulary, EqualityIsByContent) {
  EXPECT_EQ(ByteVocabulary(10), ByteVocabulary(10));
  EXPECT_FALSE(ByteVocabulary(10) == ByteVocabulary(11));
  EXPECT_FALSE(static_cast<const Vocabulary&>(ByteVocabulary()) == PassThroughVocabulary(259, 1));
}

TEST(PassThroughVocabulary, ReadsAndWritesNumbers) {
  const PassThroughVocabulary vocabulary(50, 1);
  EXPECT_EQ(vocabulary.encode(" 5 6  7 "), (Tokens{5, 6, 7}));
  EXPECT_EQ(vocabulary.decode(Tokens{5, 6, 1, 7}), "5 6 1");
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { vocabulary.encode("5 six"); }), "5 six"));
}

/// A piece as a model file holds it, to be appended to the file.
std::string user_defined_piece(const std::string& text) {
  spm::ModelProto model;
  spm::SentencePiece& piece = *model.add_pieces();
  piece.set_piece(text);
  piece.set_score(0);
  piece.set_type(spm::SentencePiece::USER_DEFINED);
  return model.SerializeAsString();
}

using SentencePieceEquality = testing::FileTest;
TEST_F(SentencePieceEquality, ExtraIdsInTheModelAreAsGoodAsAddedOnes) {
  const auto models = ::quintet::testing::fixture_root() / "seqio" / "vocab";
  const std::string model = (models / "unigram_bytefallback.model").string();
  if (!std::filesystem::exists(model)) GTEST_SKIP() << model << " is not there";
  std::string bytes = read_file(model);
  const SentencePieceVocabulary added(model, 2), other(model, 3);
  bytes += user_defined_piece("\u2581<extra_id_1>") + user_defined_piece("\u2581<extra_id_0>");
  const SentencePieceVocabulary held(write("with_extra.model", bytes));
  EXPECT_EQ(held, added);
  EXPECT_EQ(held.encode("a <extra_id_0> b"), added.encode("a <extra_id_0> b"));
  EXPECT_FALSE(held == other);
  EXPECT_FALSE(added == SentencePieceVocabulary(model, 2, /*reverse_extra_ids=*/false));
  EXPECT_FALSE(added ==
               SentencePieceVocabulary((models / "bpe_bytefallback_keepspace.model").string(), 2));
}

TEST_F(SentencePieceEquality, AnotherNormalizerInTheModelIsAsGoodAsAnOverride) {
  const auto models = ::quintet::testing::fixture_root() / "seqio" / "vocab";
  const std::string model = (models / "unigram_bytefallback.model").string();
  if (!std::filesystem::exists(model)) GTEST_SKIP() << model << " is not there";
  NormalizerSpec overrides;
  overrides.add_dummy_prefix = false;
  overrides.remove_extra_whitespaces = false;
  const SentencePieceVocabulary plain(model), overridden(model, 0, true, overrides);
  spm::ModelProto more;
  for (spm::NormalizerSpec* spec :
       {more.mutable_normalizer_spec(), more.mutable_denormalizer_spec()}) {
    spec->set_add_dummy_prefix(false);
    spec->set_remove_extra_whitespaces(false);
  }
  const SentencePieceVocabulary held(
      write("normalizer.model", read_file(model) + more.SerializeAsString()));
  EXPECT_EQ(held, overridden);
  EXPECT_FALSE(held == plain);
  for (const char* text : {"  two  spaces", "a b "}) {
    EXPECT_EQ(held.encode(text), overridden.encode(text));
    EXPECT_EQ(held.decode(held.encode(text)), text);
    EXPECT_EQ(overridden.decode(overridden.encode(text)), text);
  }
}

using PartialCodepointFile = testing::FileTest;
TEST_F(PartialCodepointFile, IsReadLineByLine) {
  const auto vocabulary =
      PartialCodepointVocabulary::create_from_file(write("v.txt", "97\n98\n"), 5);
  EXPECT_EQ(vocabulary, PartialCodepointVocabulary({'a', 'b'}, 5));
  EXPECT_TRUE(contains(
      message_of(
          ExitCode::kData,
          [&] { PartialCodepointVocabulary::create_from_file(write("bad.txt", "97\nx\n")); }),
      "bad.txt:2"));
}

TEST(Utf8, FindsTheFirstBadByte) {
  EXPECT_EQ(find_bad_utf8("plain text, longer than a block"), std::string::npos);
  EXPECT_EQ(find_bad_utf8("caf\u00e9 \U0010FFFF"), std::string::npos);
  EXPECT_EQ(find_bad_utf8("abcdefghij\xFFk"), 10u);
  EXPECT_EQ(find_bad_utf8("\xC0\x80"), 0u);           // overlong
  EXPECT_EQ(find_bad_utf8("a\xED\xA0\x80"), 1u);      // surrogate
  EXPECT_EQ(find_bad_utf8("a\xF4\x90\x80\x80"), 1u);  // above U+10FFFF
  EXPECT_EQ(find_bad_utf8("a\xE2\x82"), 1u);          // cut off
}

class SentencePiece : public testing::FileTest {
 protected:
  std::string train(const std::string& prefix, TokenizerOptions options) {
    return train_tokenizer(options, (folder_ / prefix).string()).model_file;
  }
  TokenizerOptions options() {
    std::string text;
    for (int i = 0; i < 200; ++i)
      text += "The quick brown fox number " + std::to_string(i) + " jumps over the lazy dog.\n";
    return {.inputs = {write("corpus.txt", text)}, .vocab_size = 60};
  }
};

TEST_F(SentencePiece, TrainingIsRepeatableAndGivesT5sSpecialIds) {
  const std::string a = train("a", options()), b = train("b", options());
  EXPECT_EQ(read_file(a), read_file(b));
  const SentencePieceVocabulary vocabulary(a, 100);
  EXPECT_EQ(vocabulary.vocab_size(), 160);
  EXPECT_EQ(vocabulary.eos_id(), 1);
  EXPECT_EQ(vocabulary.unk_id(), 2);
  EXPECT_EQ(vocabulary.bos_id(), std::nullopt);
  EXPECT_EQ(vocabulary.id_of_piece("\u2581<extra_id_0>"), 159);
  EXPECT_EQ(vocabulary.decode(vocabulary.encode("The lazy fox jumps.")), "The lazy fox jumps.");
  EXPECT_EQ(vocabulary, SentencePieceVocabulary(b, 100));
  EXPECT_FALSE(vocabulary == SentencePieceVocabulary(b, 100, false));
}

TEST_F(SentencePiece, BadFilesAndOptionsAreErrorsThatNameThem) {
  const auto open = [](const std::string& file) { SentencePieceVocabulary v(file); };
  EXPECT_TRUE(
      contains(message_of(ExitCode::kData, [&] { open("/no/such.model"); }), "/no/such.model"));
  const std::string text = write("text.model", "this is no model");
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { open(text); }), text));
  const std::string empty = write("empty.model", "");
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { open(empty); }), "empty"));
  // The library ends the program on it.
  const std::string zero = write(
      "zero.model", read_file(train("z", options())) + user_defined_piece(std::string("\0a", 2)));
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { open(zero); }), "zero byte"));
  TokenizerOptions too_many = options();
  too_many.vocab_size = 100'000;
  message_of(ExitCode::kUsage, [&] { train("x", too_many); });
  TokenizerOptions nothing = options();
  nothing.inputs = {write("blank.txt", "\n\n\n")};
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { train("x", nothing); }), "blank.txt"));
  TokenizerOptions bad = options();
  bad.inputs = {write("bad.txt", "fine\nbad \xFF\n")};
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { train("x", bad); }), "bad.txt:2"));
}

}  // namespace
}  // namespace quintet::data
