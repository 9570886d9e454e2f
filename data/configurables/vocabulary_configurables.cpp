#include "data/configurables/configurables.h"
#include "data/huggingface/huggingface_vocabulary.h"
#include "data/tasks/gin_types.h"
#include "data/vocabularies/bert_vocabulary.h"
#include "data/vocabularies/codepoint_vocabularies.h"
#include "runtime/base/check.h"

namespace quintet::data {

using gin::Registry;

namespace {

void register_characters_and_words(Registry& r) {
  const std::string seqio = "seqio.vocabularies.";
  r.add_function(seqio + "FullCodepointVocabulary",
                 []() -> VocabularyPtr { return std::make_shared<FullCodepointVocabulary>(); }, {});
  using Partial = PartialCodepointVocabulary;
  r.add_function(seqio + "PartialCodepointVocabulary",
                 [](Tokens codepoints, int32_t extra_ids) -> VocabularyPtr {
                   return std::make_shared<Partial>(codepoints, extra_ids);
                 },
                 {"codepoints", {"extra_ids", 0}});
  r.add_function(seqio + "PartialCodepointVocabulary.create_from_file",
                 [](std::string file, int32_t extra_ids) -> VocabularyPtr {
                   return std::make_shared<Partial>(Partial::create_from_file(file, extra_ids));
                 },
                 {"vocab_file", {"extra_ids", 0}});
  r.add_function(seqio + "UnigramVocabulary",
                 [](std::vector<std::string> unigrams, bool split_on_space) -> VocabularyPtr {
                   return std::make_shared<UnigramVocabulary>(std::move(unigrams), split_on_space);
                 },
                 {"unigrams", {"split_on_space", false}});
  const BertWordPieceVocabulary::Options bert;
  r.add(seqio + "BertWordPieceVocabulary",
        {"vocab_lookup_table",
         {"suffix_indicator", bert.suffix_indicator},
         {"max_bytes_per_word", bert.max_bytes_per_word},
         {"max_chars_per_token", nullptr},
         {"token_out_type", nullptr},
         {"unknown_token", bert.unknown_token},
         {"split_unknown_characters", bert.split_unknown_characters},
         {"lower_case", bert.lower_case},
         {"keep_whitespace", bert.keep_whitespace},
         {"normalization_form", nullptr},
         {"preserve_unused_token", bert.preserve_unused_token},
         {"pad_id", 0},
         {"start_of_sequence_id", bert.start_of_sequence_id},
         {"end_of_sequence_id", bert.end_of_sequence_id}},
        [](const gin::Arguments& a) {
          QT_CHECK(a.get<int64_t>("pad_id") == 0, "{}: padding has id 0 here, found {}",
                   a.where("pad_id").text, a.get<int64_t>("pad_id"));
          return gin::to_value(VocabularyPtr(
              std::make_shared<BertWordPieceVocabulary>(BertWordPieceVocabulary::Options{
                  .vocab_lookup_table = a.get<std::string>("vocab_lookup_table"),
                  .suffix_indicator = a.get<std::string>("suffix_indicator"),
                  .max_bytes_per_word = a.get<int64_t>("max_bytes_per_word"),
                  .max_chars_per_token = a.get<std::optional<int64_t>>("max_chars_per_token"),
                  .unknown_token = a.get<std::string>("unknown_token"),
                  .split_unknown_characters = a.get<bool>("split_unknown_characters"),
                  .lower_case = a.get<bool>("lower_case"),
                  .keep_whitespace = a.get<bool>("keep_whitespace"),
                  .normalization_form = a.get<std::optional<std::string>>("normalization_form"),
                  .preserve_unused_token = a.get<bool>("preserve_unused_token"),
                  .start_of_sequence_id = a.get<int32_t>("start_of_sequence_id"),
                  .end_of_sequence_id = a.get<int32_t>("end_of_sequence_id")})));
        });
}

}  // namespace

void register_vocabularies(Registry& r) {
  r.add_function("seqio.vocabularies.ByteVocabulary",
                 [](int32_t extra_ids) -> VocabularyPtr {
                   return std::make_shared<ByteVocabulary>(extra_ids);
                 },
                 {{"extra_ids", 0}});
  r.add_struct<NormalizerSpec>("sentencepiece.sentencepiece_model_pb2.NormalizerSpec")
      .arg("name", &NormalizerSpec::name)
      .arg("precompiled_charsmap", &NormalizerSpec::precompiled_charsmap)
      .arg("add_dummy_prefix", &NormalizerSpec::add_dummy_prefix)
      .arg("remove_extra_whitespaces", &NormalizerSpec::remove_extra_whitespaces)
      .arg("escape_whitespaces", &NormalizerSpec::escape_whitespaces)
      .arg("normalization_rule_tsv", &NormalizerSpec::normalization_rule_tsv);
  r.add_function("seqio.vocabularies.SentencePieceVocabulary",
                 [](std::string file, std::optional<int32_t> extra_ids, bool reverse_extra_ids,
                    std::optional<NormalizerSpec> overrides, bool) -> VocabularyPtr {
                   return std::make_shared<SentencePieceVocabulary>(
                       std::move(file), extra_ids.value_or(0), reverse_extra_ids,
                       overrides.value_or(NormalizerSpec{}));
                 },
                 {"sentencepiece_model_file",
                  {"extra_ids", 0},
                  {"reverse_extra_ids", true},
                  {"normalizer_spec_overrides", nullptr},
                  {"use_fast_tokenizer", false}});
  r.add_function("seqio.vocabularies.PassThroughVocabulary",
                 [](int32_t size, std::optional<int32_t> eos_id) -> VocabularyPtr {
                   return std::make_shared<PassThroughVocabulary>(size, eos_id);
                 },
                 {"size", {"eos_id", nullptr}});
  r.add_function("quintet.data.HuggingFaceVocabulary",
                 [](std::string directory) -> VocabularyPtr {
                   return std::make_shared<HuggingFaceVocabulary>(std::move(directory));
                 },
                 {"directory"});
  register_characters_and_words(r);
  for (const char* name :
       {"ByteVocabulary", "SentencePieceVocabulary", "PassThroughVocabulary", "UnigramVocabulary",
        "FullCodepointVocabulary", "PartialCodepointVocabulary", "BertWordPieceVocabulary"})
    r.add_alias(std::string("seqio.") + name, std::string("seqio.vocabularies.") + name);

  r.add_struct<Feature>("seqio.dataset_providers.Feature")
      .required("vocabulary", &Feature::vocabulary)
      .arg("add_eos", &Feature::add_eos)
      .arg("required", &Feature::required)
      .arg("dtype", &Feature::type)
      .arg("rank", &Feature::rank);
  r.add_function("seqio.dataset_providers.ContinuousFeature",
                 [](bool required, FeatureType type, size_t rank) {
                   return Feature{.vocabulary = std::make_shared<PassThroughVocabulary>(0),
                                  .add_eos = false,
                                  .required = required,
                                  .type = type,
                                  .rank = rank};
                 },
                 {{"required", true}, {"dtype", "int32"}, {"rank", 1}});
  for (const char* name : {"Feature", "ContinuousFeature"})
    r.add_alias(std::string("seqio.") + name, std::string("seqio.dataset_providers.") + name);
}

}  // namespace quintet::data
