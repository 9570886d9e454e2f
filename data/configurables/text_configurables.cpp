#include "data/configurables/preprocessor_configurables.h"
#include "data/preprocessors/glue_preprocessors.h"
#include "data/preprocessors/language_preprocessors.h"
#include "data/preprocessors/qa_preprocessors.h"
#include "data/preprocessors/rank_classification.h"
#include "data/preprocessors/sentence_preprocessors.h"
#include "data/preprocessors/text_preprocessors.h"
#include "data/tasks/gin_types.h"

namespace quintet::gin {

template <>
struct Convert<data::RankMode> {
  static std::string expected() { return "'train', 'eval' or 'fewshot_eval'"; }
  static data::RankMode from(const Value& value, const Where& where) {
    const auto text = as<std::string>(value, where);
    if (text == "train") return data::RankMode::train;
    if (text == "eval") return data::RankMode::eval;
    if (text == "fewshot_eval") return data::RankMode::fewshot_eval;
    conversion_error(where, expected(), value);
  }
  static Value to(data::RankMode mode) {
    constexpr const char* kNames[] = {"eval", "train", "fewshot_eval"};
    return kNames[static_cast<size_t>(mode)];
  }
};

template <>
struct Convert<data::RankClassification::Texts> : MadeByReference<data::RankClassification::Texts> {
  static std::string expected() { return "a function such as @quintet.data.texts_of"; }
};
template <>
struct Convert<std::function<std::vector<bool>(const data::Example&)>>
    : MadeByReference<std::function<std::vector<bool>(const data::Example&)>> {
  static std::string expected() { return "a function such as @quintet.data.one_hot_of"; }
};
template <>
struct Convert<std::function<double(const data::Example&)>>
    : MadeByReference<std::function<double(const data::Example&)>> {
  static std::string expected() { return "a function such as @quintet.data.number_of"; }
};

}  // namespace quintet::gin

namespace quintet::data {
namespace {

using gin::Registry;
using gin::Value;
using gin::Where;

/// A preprocessor with two texts that must be given.
template <typename T>
void add_pair(Registry& r, const std::string& name,
              const std::pair<const char*, std::string T::*>& first,
              const std::pair<const char*, std::string T::*>& second) {
  r.add(name, {first.first, second.first}, [first, second](const gin::Arguments& a) {
    auto object = std::make_shared<T>();
    for (const auto& [parameter, member] : {first, second})
      (*object).*member = a.get<std::string>(parameter);
    return gin::to_value(PreprocessorPtr(std::move(object)));
  });
}

struct TokenizeAndAppendEos final : Tokenize {
  TokenizeAndAppendEos() { with_eos = true; }
};

/// t5.data.preprocessors re-exports two of seqio.preprocessors.
void register_seqio(Registry& r) {
  r.add_struct<Rekey>("seqio.preprocessors.rekey")
      .arg_with("key_map", nullptr, [](Rekey& rekey, const Value& value, const Where& where) {
        rekey.key_map.clear();
        if (value.is_none()) return;
        using Map = std::vector<std::pair<std::string, std::optional<std::string>>>;
        for (auto& [name, old_name] : gin::as<Map>(value, where))
          rekey.key_map.emplace_back(name, old_name.value_or(""));
      });
  r.add_struct<Tokenize>("seqio.preprocessors.tokenize")
      .arg("copy_pretokenized", &Tokenize::copy_pretokenized)
      .arg("with_eos", &Tokenize::with_eos);
  r.add_struct<TokenizeAndAppendEos>("seqio.preprocessors.tokenize_and_append_eos")
      .arg("copy_pretokenized", &Tokenize::copy_pretokenized);
  r.add_struct<PrintDataset>("seqio.preprocessors.print_dataset")
      .arg("summarize", &PrintDataset::summarize);
  add_pair<PreprocessTensorflowExamples>(
      r, "seqio.preprocessors.preprocess_tensorflow_examples",
      {"inputs_format", &PreprocessTensorflowExamples::inputs_format},
      {"targets_format", &PreprocessTensorflowExamples::targets_format});
  r.add_alias("t5.data.preprocessors.rekey", "seqio.preprocessors.rekey");
  r.add_alias("t5.data.preprocessors.tokenize", "seqio.preprocessors.tokenize");
}

void register_tsv(Registry& r) {
  auto parse = r.add_struct<ParseTsv>("t5.data.preprocessors.parse_tsv");
  parse.arg("field_delim", &ParseTsv::field_delim)
      .arg_with("field_columns", nullptr,
                [](ParseTsv& object, const Value& value, const Where& where) {
                  if (!value.is_none())
                    object.field_columns = gin::as<std::vector<int64_t>>(value, where);
                });
  add_names(parse, "field_names", &ParseTsv::field_names);
  auto preprocess = r.add_struct<PreprocessTsv>("t5.data.preprocessors.preprocess_tsv");
  preprocess.arg("field_delim", &PreprocessTsv::field_delim)
      .arg("num_fields", &PreprocessTsv::num_fields)
      .arg("inputs_format", &PreprocessTsv::inputs_format)
      .arg("targets_format", &PreprocessTsv::targets_format)
      .arg("use_quote_delim", &PreprocessTsv::use_quote_delim);
  add_names(preprocess, "field_names", &PreprocessTsv::field_names);
  r.add_struct<FormatPair>("quintet.data.format_pair")
      .required("inputs_format", &FormatPair::inputs_format)
      .required("targets_format", &FormatPair::targets_format);
  r.add_struct<AddPrefix>("quintet.data.add_prefix")
      .required("prefix", &AddPrefix::prefix)
      .arg("feature_key", &AddPrefix::feature_key);
}

void register_language(Registry& r, const std::string& t5) {
  add_pair<Translate>(r, t5 + "translate", {"source_language", &Translate::source_language},
                      {"target_language", &Translate::target_language});
  add_pair<MultiTranslate>(r, t5 + "multi_translate",
                           {"source_language", &MultiTranslate::source_language},
                           {"target_language", &MultiTranslate::target_language});
  add_pair<Summarize>(r, t5 + "summarize", {"article_key", &Summarize::article_key},
                      {"summary_key", &Summarize::summary_key});
  r.add_struct<Lm>(t5 + "lm");
  r.add_struct<PadNonspacedLanguages>(t5 + "pad_nonspaced_languages")
      .arg("text_key", &PadNonspacedLanguages::text_key);
  r.add_struct<FilterByStringLength>(t5 + "filter_by_string_length")
      .arg("feature_key", &FilterByStringLength::feature_key)
      .arg("min_length", &FilterByStringLength::min_length)
      .arg("max_length", &FilterByStringLength::max_length);
}

template <typename Function>
Value object_of(Function function) {
  return Value::object(std::make_shared<Function>(std::move(function)));
}

void register_rank_classification(Registry& r, const std::string& t5) {
  r.add("quintet.data.texts_of", {"key"},
        [](const gin::Arguments& a) { return object_of(texts_of(a.get<std::string>("key"))); });
  r.add("quintet.data.one_hot_of", {"key", "num_classes"}, [](const gin::Arguments& a) {
    return object_of(one_hot_of(a.get<std::string>("key"), a.get<int64_t>("num_classes")));
  });
  r.add("quintet.data.number_of", {"key"},
        [](const gin::Arguments& a) { return object_of(number_of(a.get<std::string>("key"))); });
  r.add(t5 + "rank_classification",
        {"inputs_fn",
         "targets_fn",
         "is_correct_fn",
         {"weight_fn", nullptr},
         {"mode", "eval"},
         {"passthrough_feature_keys", nullptr}},
        [](const gin::Arguments& a) {
          auto rank = std::make_shared<RankClassification>();
          rank->inputs_fn = a.get<RankClassification::Texts>("inputs_fn");
          rank->targets_fn = a.get<RankClassification::Texts>("targets_fn");
          rank->is_correct_fn = a.get<decltype(rank->is_correct_fn)>("is_correct_fn");
          if (!a.value("weight_fn").is_none())
            rank->weight_fn = a.get<decltype(rank->weight_fn)>("weight_fn");
          rank->mode = a.get<RankMode>("mode");
          rank->passthrough_feature_keys =
              a.get<std::optional<std::vector<std::string>>>("passthrough_feature_keys")
                  .value_or(std::vector<std::string>{});
          return gin::to_value(PreprocessorPtr(rank));
        });
}

void register_glue(Registry& r, const std::string& t5) {
  auto glue = r.add_struct<Glue>(t5 + "glue");
  glue.required("benchmark_name", &Glue::benchmark_name)
      .required("label_names", &Glue::label_names)
      .arg("id_key", &Glue::id_key);
  add_names(glue, "feature_names", &Glue::feature_names);
  r.add_struct<Stsb>(t5 + "stsb");
  r.add_struct<Record>(t5 + "record");
  r.add_struct<Wsc>(t5 + "wsc");
  r.add_struct<WscSimple>(t5 + "wsc_simple")
      .arg("label", &WscSimple::label)
      .arg("correct_referent_only", &WscSimple::correct_referent_only);
  r.add_struct<WnliSimple>(t5 + "wnli_simple").arg("label", &WnliSimple::label);
  r.add_struct<DefinitePronounResolutionSimple>(t5 + "definite_pronoun_resolution_simple")
      .arg("label", &DefinitePronounResolutionSimple::label);

  auto rank = r.add_struct<RankClassificationFormatter>(t5 + "rank_classification_formatter");
  const auto formats = [](auto member) {
    return [member](RankClassificationFormatter& object, const Value& value, const Where& where) {
      if (value.get_if<std::string>() != nullptr)
        object.*member = {gin::as<std::string>(value, where)};
      else
        object.*member = gin::as<std::vector<std::string>>(value, where);
    };
  };
  using Formatter = RankClassificationFormatter;
  rank.arg_with("inputs_formats", nullptr, formats(&Formatter::inputs_formats))
      .arg_with("targets_formats", nullptr, formats(&Formatter::targets_formats))
      .arg("mode", &Formatter::mode)
      .arg("label_key", &Formatter::label_key)
      .arg("weight_key", &Formatter::weight_key);
}

void register_questions(Registry& r, const std::string& t5) {
  r.add_struct<Squad>(t5 + "squad").arg("include_context", &Squad::include_context);
  r.add_struct<SquadSpanSpaceTokenized>(t5 + "squad_span_space_tokenized");
  r.add_struct<TriviaQa>(t5 + "trivia_qa");
  r.add_struct<TriviaQaTruncateInputs>(t5 + "trivia_qa_truncate_inputs");
}

void register_sentences(Registry& r, const std::string& t5) {
  r.add_struct<SplitTextToWords>(t5 + "split_text_to_words")
      .arg("text_key", &SplitTextToWords::text_key)
      .arg("min_num_words", &SplitTextToWords::min_num_words);
  r.add_struct<RandomSplitText>(t5 + "random_split_text")
      .arg("text_key", &RandomSplitText::text_key)
      .arg("min_words_per_segment", &RandomSplitText::min_words_per_segment)
      .arg("max_words_per_segment", &RandomSplitText::max_words_per_segment)
      .arg("max_words_total", &RandomSplitText::max_words_total);
  r.add_struct<FillInTheBlank>(t5 + "fill_in_the_blank")
      .arg("text_key", &FillInTheBlank::text_key)
      .arg("label", &FillInTheBlank::label);
  r.add_struct<FillInTheBlankSized>(t5 + "fill_in_the_blank_sized")
      .arg("size_bins", &FillInTheBlankSized::size_bins)
      .arg("text_key", &FillInTheBlankSized::text_key)
      .arg("label", &FillInTheBlankSized::label);
  r.add_struct<NeighboringPairs>(t5 + "neighboring_pairs")
      .arg("text_key", &NeighboringPairs::text_key)
      .arg("reuse_sentences", &NeighboringPairs::reuse_sentences);
  r.add_struct<NextSentencePrediction>(t5 + "next_sentence_prediction")
      .arg("text_key", &NextSentencePrediction::text_key)
      .arg("reuse_sentences", &NextSentencePrediction::reuse_sentences)
      .arg("label_sentences", &NextSentencePrediction::label_sentences)
      .arg("p_neighbors", &NextSentencePrediction::p_neighbors)
      .arg("label", &NextSentencePrediction::label)
      .arg("buffer_size", &NextSentencePrediction::buffer_size);
}

}  // namespace

void register_text_preprocessors(Registry& r) {
  const std::string t5 = "t5.data.preprocessors.";
  register_seqio(r);
  register_tsv(r);
  register_language(r, t5);
  register_glue(r, t5);
  register_rank_classification(r, t5);
  register_questions(r, t5);
  register_sentences(r, t5);
}

}  // namespace quintet::data
