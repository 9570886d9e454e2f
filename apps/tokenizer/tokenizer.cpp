#include "apps/tokenizer/tokenizer.h"

#include <fmt/ranges.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/flags/command_line.h"
#include "apps/flags/result_format.h"
#include "data/huggingface/huggingface_vocabulary.h"
#include "data/tokenizer/tokenizer_trainer.h"
#include "data/vocabularies/utf8.h"
#include "data/vocabularies/vocabulary.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

/// The flags of encode and decode.
struct Vocabulary {
  std::string model;
  int32_t extra_ids = 0;
  std::string text;
  ResultFormat format{"text"};

  void add_options(CLI::App& app, const char* text_help) {
    app.add_option("--model", model,
                   "a .model file, a Hugging Face directory, or 'byte' for ByT5's bytes")
        ->required()
        ->transform(mapped_path);
    app.add_option("--extra_ids", extra_ids, "sentinels at the end of the vocabulary")
        ->capture_default_str();
    app.add_option("--text", text, text_help);
    format.add_to(app);
  }
  void print(const nlohmann::ordered_json& object, const std::string& words) const {
    format.print_object(
        object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    format.print_text(words + "\n");
  }
  data::VocabularyPtr open() const {
    if (model == "byte") return std::make_shared<data::ByteVocabulary>(extra_ids);
    if (std::filesystem::is_directory(model)) {
      QT_CHECK(extra_ids == 0, "{}: a Hugging Face directory says what --extra_ids says", model);
      return std::make_shared<data::HuggingFaceVocabulary>(model);
    }
    return std::make_shared<data::SentencePieceVocabulary>(model, extra_ids);
  }
};

/// Calls work with --text if it was given, else with every line of standard input.
template <typename Work>
void for_each_line(const CLI::App& app, const std::string& text, Work work) {
  if (app.count("--text") > 0) {
    work(text);
    return;
  }
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    const size_t bad = data::find_bad_utf8(line);
    QT_CHECK_AS(ExitCode::kData, bad == std::string::npos,
                "standard input:{}: byte {} of the line is not UTF-8; convert it (iconv -t UTF-8)",
                number, bad + 1);
    work(line);
  }
  QT_CHECK_AS(ExitCode::kDisk, !std::cin.bad(), "standard input: cannot read");
}

}  // namespace

int run_tokenizer_train(std::span<char* const> args) {
  data::TokenizerOptions options;
  std::string prefix;
  bool quiet = false;
  ResultFormat format;
  CommandLine cli(
      "tokenizer train", "Trains a SentencePiece model on text files.",
      "quintet tokenizer train --input 'docs/*.txt' --vocab_size 8000 --model_prefix docs");
  CLI::App& app = cli.app();
  app.add_option("--input", options.inputs, "text files or patterns; *.gz is decompressed")
      ->required();
  app.add_option("--vocab_size", options.vocab_size, "pieces, special ids included, extra ids not")
      ->required();
  app.add_option("--model_prefix", prefix, "writes PREFIX.model and PREFIX.vocab")
      ->required()
      ->transform(mapped_path);
  app.add_option("--model_type", options.model_type, "unigram, bpe, char or word")
      ->capture_default_str()
      ->check(CLI::IsMember({"unigram", "bpe", "char", "word"}));
  app.add_option("--character_coverage", options.character_coverage,
                 "share of characters that get a piece")
      ->capture_default_str()
      ->check(CLI::Range(0.9, 1.0));
  app.add_option("--normalization", options.normalization, "nmt_nfkc, nfkc, identity, ..")
      ->capture_default_str();
  app.add_flag("--byte_fallback", options.byte_fallback, "unknown characters as bytes");
  app.add_flag("--split_digits", options.split_digits, "make every digit a separate piece");
  app.add_option("--input_sentence_size", options.input_sentence_size,
                 "sample at most so many lines, evenly spread")
      ->capture_default_str();
  app.add_flag("--skip_bad_utf8", options.on_bad_utf8_skip, "skip lines that are not UTF-8");
  app.add_flag("--quiet", quiet, "print nothing of what was made");
  format.add_to(app);
  if (!cli.parse(args)) return 0;
  const auto report = data::train_tokenizer(options, prefix);
  if (quiet) return 0;
  format.print_object(nlohmann::ordered_json{
      {"pieces", report.pieces},
      {"lines", report.lines},
      {"used", report.used},
      {"skipped", report.skipped},
      {"model_file", report.model_file},
      {"vocab_file",
       report.vocab_file}}.dump());
  format.print_text(fmt::format("{} pieces from {} of {} lines ({} skipped): {}, {}\n",
                                report.pieces, report.used, report.lines, report.skipped,
                                report.model_file, report.vocab_file));
  return 0;
}

int run_tokenizer_encode(std::span<char* const> args) {
  Vocabulary vocabulary;
  bool pieces = false;
  CommandLine cli("tokenizer encode",
                  "Text to ids, without an end token: one line of ids per line of text.",
                  "quintet tokenizer encode --model docs.model --text 'hello world'\n"
                  "quintet tokenizer encode --model /tmp/numbers-hf --text 'hello world'\n"
                  "quintet tokenizer encode --model docs.model --pieces < lines.txt");
  vocabulary.add_options(cli.app(), "the text; without it, lines of standard input");
  cli.app().add_flag("--pieces", pieces, "print pieces instead of ids");
  if (!cli.parse(args)) return 0;
  const auto model = vocabulary.open();
  const auto* sentencepiece = dynamic_cast<const data::SentencePieceVocabulary*>(model.get());
  QT_CHECK(!pieces || sentencepiece != nullptr, "tokenizer encode: --pieces needs a .model file");
  for_each_line(cli.app(), vocabulary.text, [&](const std::string& line) {
    const auto ids = model->encode(line);
    nlohmann::ordered_json object = {{"text", line}, {"ids", ids}};
    std::vector<std::string> shown;
    for (const int32_t id : ids)
      shown.push_back(pieces ? sentencepiece->piece_of_id(id) : std::to_string(id));
    if (pieces) object["pieces"] = shown;
    vocabulary.print(object, fmt::format("{}", fmt::join(shown, " ")));
  });
  return 0;
}

int run_tokenizer_decode(std::span<char* const> args) {
  Vocabulary vocabulary;
  CommandLine cli(
      "tokenizer decode", "Ids to text: one line of text per line of ids.",
      "quintet tokenizer decode --model docs.model --text '12 7 301'\n"
      "quintet tokenizer encode --model byte < a.txt | quintet tokenizer decode --model byte");
  vocabulary.add_options(cli.app(), "ids between spaces; without it, lines of standard input");
  if (!cli.parse(args)) return 0;
  const auto model = vocabulary.open();
  const data::PassThroughVocabulary numbers(std::max(1, model->vocab_size()));
  for_each_line(cli.app(), vocabulary.text, [&](const std::string& line) {
    const auto ids = numbers.encode(line);
    const std::string text = model->decode(ids);
    vocabulary.print({{"ids", ids}, {"text", text}}, text);
  });
  return 0;
}

}  // namespace quintet
