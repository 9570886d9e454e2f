#pragma once
// The tokenizer of a Hugging Face directory, as its files describe it: tokenizer.json or spiece.model,
// with tokenizer_config.json, special_tokens_map.json and added_tokens.json.
//
//   const TokenizerParts parts = read_tokenizer("/models/flan-t5-small");
//
// Source: transformers 5.23, AutoTokenizer and T5Tokenizer, which takes only the pieces and the character
// map of tokenizer.json and has the rest of its own; tokenizers 0.23 for other classes.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/huggingface/added_tokens.h"
#include "data/huggingface/normalizer.h"
#include "data/huggingface/pre_tokenizer.h"
#include "data/huggingface/token_decoder.h"
#include "data/huggingface/unigram_model.h"

namespace quintet::data {

struct TokenizerParts {
  std::filesystem::path file;                 // which decides most ids; empty: bytes
  std::shared_ptr<const UnigramModel> model;  // null: ByT5's bytes
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder = TokenDecoder::metaspace();
  std::optional<AddedTokens> added;
  bool adds_eos = true;  // to a text
  std::optional<int32_t> pad_id, eos_id, unk_id;
};

/// What a directory's tokenizer is; none: it has no file of one.
enum class TokenizerKind { none, bytes, t5, other };
TokenizerKind tokenizer_kind(const std::filesystem::path& directory);

/// Throws kData naming file and field for what is damaged or not supported here, and for a directory
/// without a tokenizer.
TokenizerParts read_tokenizer(const std::filesystem::path& directory);

}  // namespace quintet::data
