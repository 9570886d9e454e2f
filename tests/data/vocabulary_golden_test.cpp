// Every vocabulary of fixtures/seqio/vocab: sizes, special ids, encoding, decoding of anything.
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <random>

#include "data/configurables/configurables.h"
#include "data/vocabularies/vocabulary.h"
#include "tests/data/gin_values.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

using ::quintet::testing::fixture_root;

/// The vocabulary that an entry of vocabs.json describes. Those of more/ name their class.
VocabularyPtr make(const std::string& name, const Json& entry,
                   const std::filesystem::path& folder) {
  const auto extra_ids = static_cast<int32_t>(entry["extra_ids"].as_int());
  if (entry.has("kind")) {
    gin::Registry registry;
    register_data(registry);
    gin::Config config(registry, {});
    gin::Callable::Named named;
    const std::string kind = entry["kind"].as_string();
    if (entry.has("model"))
      named.emplace_back(
          kind == "SentencePieceVocabulary" ? "sentencepiece_model_file" : "vocab_lookup_table",
          (folder / entry["model"].as_string()).string());
    const auto arguments = [](const Json& json) {
      gin::Callable::Named all;
      for (const auto& [key, value] : json.members())
        all.emplace_back(key, testing::gin_value(value.raw()));
      return all;
    };
    for (auto& [key, value] : arguments(entry["args"]))
      named.emplace_back(key, key == "normalizer_spec_overrides"
                                  ? config.call("sentencepiece_model_pb2.NormalizerSpec",
                                                arguments(entry["args"][key]))
                                  : value);
    return gin::as<VocabularyPtr>(config.call("seqio." + kind, named), {kind});
  }
  if (entry.has("model"))
    return std::make_shared<SentencePieceVocabulary>((folder / entry["model"].as_string()).string(),
                                                     extra_ids, !name.ends_with("forward"));
  if (name.starts_with("byte")) return std::make_shared<ByteVocabulary>(extra_ids);
  const int64_t eos = entry["eos_id"].is_null() ? -1 : entry["eos_id"].as_int();
  return std::make_shared<PassThroughVocabulary>(
      static_cast<int32_t>(entry["vocab_size"].as_int()),
      eos < 0 ? std::nullopt : std::optional(static_cast<int32_t>(eos)));
}

/// null and -1 both mean that there is no such id.
std::optional<int32_t> id_of(const Json& json) {
  if (json.is_null() || json.as_int() < 0) return std::nullopt;
  return static_cast<int32_t>(json.as_int());
}

Tokens tokens_of(const Json& json) {
  const auto wide = json.as_ints();
  return {wide.begin(), wide.end()};
}

class VocabularyGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = fixture_root() / "seqio" / GetParam();
    if (!std::filesystem::exists(folder_ / "vocabs.json"))
      GTEST_SKIP() << folder_ << " has no vocabs.json";
    for (const auto& [name, entry] : Json::read(folder_ / "vocabs.json").members())
      vocabularies_.emplace_back(name, make(name, entry, folder_));
    ASSERT_FALSE(vocabularies_.empty());
  }
  /// Rows of <vocabulary><suffix>; none if there is no such file.
  std::vector<Json> rows_of(const std::string& name, const std::string& suffix) {
    const auto file = folder_ / (name + suffix);
    return std::filesystem::exists(file) ? Json::read_lines(file) : std::vector<Json>{};
  }
  std::filesystem::path folder_;
  std::vector<std::pair<std::string, VocabularyPtr>> vocabularies_;
};

TEST_P(VocabularyGolden, SizesAndSpecialIds) {
  const Json meta = Json::read(folder_ / "vocabs.json");
  for (const auto& [name, vocabulary] : vocabularies_) {
    SCOPED_TRACE(name);
    EXPECT_EQ(vocabulary->vocab_size(), meta[name]["vocab_size"].as_int());
    EXPECT_EQ(vocabulary->base_vocab_size(), meta[name]["base_vocab_size"].as_int());
    EXPECT_EQ(vocabulary->extra_ids(), meta[name]["extra_ids"].as_int());
    EXPECT_EQ(vocabulary->pad_id(), meta[name]["pad_id"].as_int());
    EXPECT_EQ(vocabulary->eos_id(), id_of(meta[name]["eos_id"]));
    EXPECT_EQ(vocabulary->unk_id(), id_of(meta[name]["unk_id"]));
    if (meta[name].has("bos_id")) {
      EXPECT_EQ(vocabulary->bos_id(), id_of(meta[name]["bos_id"]));
    }
    if (!meta[name].has("extra_id_ids")) continue;
    const auto& pieces = dynamic_cast<const SentencePieceVocabulary&>(*vocabulary);
    for (const auto& [piece, id] : meta[name]["extra_id_ids"].members())
      EXPECT_EQ(pieces.id_of_piece("\u2581" + piece), id.as_int()) << piece;
  }
}

TEST_P(VocabularyGolden, EncodesAndDecodesText) {
  int64_t compared = 0;
  for (const auto& [name, vocabulary] : vocabularies_) {
    SCOPED_TRACE(name);
    for (const Json& row : rows_of(name, ".jsonl")) {
      if (row.has("error")) continue;  // the reference's own limits
      const Tokens ids = vocabulary->encode(row["text"].as_string());
      EXPECT_EQ(ids, tokens_of(row["ids"])) << row.path() << ": " << row["text"].as_string();
      EXPECT_EQ(vocabulary->decode(tokens_of(row["ids"])), row["decoded"].as_string())
          << row.path();
      if (row.has("pieces")) {
        const auto& pieces = dynamic_cast<const SentencePieceVocabulary&>(*vocabulary);
        const auto want = row["pieces"].as_strings();
        ASSERT_EQ(want.size(), ids.size());
        for (size_t i = 0; i < ids.size(); ++i) {
          const bool unknown = ids[i] == vocabulary->unk_id();
          EXPECT_TRUE(unknown || pieces.piece_of_id(ids[i]) == want[i]) << row.path() << " " << i;
        }
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

TEST_P(VocabularyGolden, DecodesAnyIds) {
  int64_t compared = 0;
  for (const auto& [name, vocabulary] : vocabularies_) {
    SCOPED_TRACE(name);
    for (const Json& row : rows_of(name, ".decode.jsonl")) {
      if (row.has("error")) continue;
      EXPECT_EQ(vocabulary->decode(tokens_of(row["ids"])), row["decoded"].as_string())
          << row.path();
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

/// Ids that end texts seldom, continue characters often and mean everything a vocabulary knows.
Tokens random_ids(const Vocabulary& vocabulary, std::mt19937& random) {
  const auto pick = [&](int64_t n) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(n));
  };
  const auto* pieces = dynamic_cast<const SentencePieceVocabulary*>(&vocabulary);
  const int32_t size = vocabulary.vocab_size();
  const std::vector<std::string> texts{" ", "  a", "h\u00e9", "\u4f60\U0001F642", "\u00bd", "<"};
  Tokens ids;
  while (ids.size() < 60) {
    const int32_t kind = pick(8);
    if (kind == 0) {
      ids.push_back(pick(32) == 0 ? -5 : size + pick(3) - 1);
    } else if (kind < 4) {
      ids.push_back(pick(size));
    } else if (pieces != nullptr && kind < 7) {  // a byte, or a space at the start
      const int32_t id = pieces->id_of_piece(fmt::format("<0x{:02X}>", 0x80 + pick(0x78)));
      ids.push_back(pick(8) == 0 ? pieces->id_of_piece("\u2581") : id);
    } else if (size < 1000 && kind < 6) {  // of the byte vocabularies: within characters
      ids.push_back(3 + 0x80 + pick(0x78));
    } else if (dynamic_cast<const PassThroughVocabulary*>(&vocabulary) == nullptr) {
      const Tokens more = vocabulary.encode(texts[static_cast<size_t>(pick(6))]);
      ids.insert(ids.end(), more.begin(),
                 more.begin() + std::min<int64_t>(std::ssize(more), 1 + pick(4)));
    }
    if (pick(12) != 0) std::erase(ids, vocabulary.eos_id().value_or(-1));
  }
  return ids;
}

TEST_P(VocabularyGolden, IdsOneByOneGiveTheTextOfAll) {
  std::mt19937 random(7);
  for (const auto& [name, vocabulary] : vocabularies_) {
    SCOPED_TRACE(name);
    for (int round = 0; round < 40; ++round) {
      const Tokens ids = random_ids(*vocabulary, random);
      DecodeState state;
      std::string certain;
      for (size_t n = 0; n <= ids.size(); ++n) {
        const std::span<const int32_t> so_far(ids.data(), n);
        ASSERT_EQ(certain + vocabulary->decode_open(state), vocabulary->decode(so_far))
            << fmt::format("ids {}", fmt::join(so_far, " "));
        if (n == ids.size()) break;
        const std::string before = certain;
        vocabulary->decode_next(ids[n], state, certain);
        ASSERT_TRUE(certain.starts_with(before));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, VocabularyGolden, ::testing::Values("vocab", "more/vocab"));

}  // namespace
}  // namespace quintet::data
