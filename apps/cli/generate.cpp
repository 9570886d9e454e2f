// `quintet generate`: text in, text out, by a trained model.

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"
#include "apps/flags/compute_flags.h"
#include "apps/flags/quantize_flag.h"
#include "apps/generate/generation_flags.h"
#include "apps/model/predictor.h"
#include "apps/model/text_model.h"
#include "apps/process/output.h"
#include "data/text_stream.h"
#include "runtime/base/json.h"

namespace quintet {
namespace {

using JsonText = nlohmann::ordered_json;

struct GenerateFlags {
  std::string model_dir, input, format = "text";
  std::vector<std::string> texts;
  GenerationFlags generation;
  int64_t max_decode_len = 0, batch_size = 8;
  QuantizeFlag quantize;
  ComputeFlags compute;
};

/// Whole lines of text to predictions, a batch at a time.
class Generator {
 public:
  explicit Generator(const GenerateFlags& flags, const std::vector<std::string>& bindings)
      : flags_(flags),
        model_(flags.model_dir, bindings),
        weights_(weights_of(flags.quantize.type(), model_.trained().reader)),
        predictor_(model_.configured(), flags.generation.beams, weights_),
        length_(flags.max_decode_len > 0 ? flags.max_decode_len : model_.answer_length()) {
    drop_packed(*model_.configured().model, weights_);
    fmt::print(stderr, "{} at step {}, at most {} tokens\n", model_.trained().model_dir.string(),
               model_.trained().step, length_);
  }

  /// Prints what the model answers to each text, in order.
  void answer(std::span<const std::string> texts) {
    const auto size = static_cast<size_t>(flags_.batch_size);
    for (size_t i = 0; i < texts.size(); i += size) {
      const auto some = texts.subspan(i, std::min(size, texts.size() - i));
      flags_.generation.makes_requests() ? answer_requests(some) : answer_batch(some);
      flush_output();
      answered_ += std::ssize(some);
    }
  }

 private:
  HostArrays features(const std::vector<std::vector<int32_t>>& ids) const {
    const auto rows = static_cast<int64_t>(ids.size());
    size_t longest = 0;
    for (const auto& row : ids) longest = std::max(longest, row.size());
    HostArrays batch;
    const auto feature = [&](const std::string& name, int64_t length) {
      return (batch[name] = HostArray(DType::i32, {rows, length})).as<int32_t>();
    };
    const auto inputs_length = static_cast<int64_t>(longest);
    if (!model_.decoder_only()) {
      const auto tokens = feature("encoder_input_tokens", inputs_length);
      for (size_t r = 0; r < ids.size(); ++r)
        std::copy(ids[r].begin(), ids[r].end(), tokens.begin() + r * longest);
      feature("decoder_input_tokens", length_);
      return batch;
    }
    // The start token, the prefix, then room for what follows.
    const int64_t length = 1 + inputs_length + length_;
    const auto tokens = feature("decoder_input_tokens", length);
    const auto prefix = feature("decoder_causal_attention", length);
    for (size_t r = 0; r < ids.size(); ++r) {
      const auto begin = r * static_cast<size_t>(length);
      std::copy(ids[r].begin(), ids[r].end(), tokens.begin() + begin + 1);
      std::fill_n(prefix.begin() + begin, ids[r].size() + 1, 1);
    }
    return batch;
  }

  void answer_batch(std::span<const std::string> texts) const {
    std::vector<std::vector<int32_t>> ids;
    for (const std::string& text : texts) ids.push_back(model_.encode(text));
    const decoding::Decodes decodes = predictor_.predict(features(ids));
    for (size_t r = 0; r < texts.size(); ++r)
      flags_.format == "json" ? print_json(texts[r], decodes, static_cast<int64_t>(r))
                              : print_text(decodes, static_cast<int64_t>(r));
  }

  void answer_requests(std::span<const std::string> texts) const {
    std::vector<std::vector<int32_t>> ids;
    std::vector<decoding::GenerationRequest> requests;
    for (const std::string& text : texts) {
      ids.push_back(model_.encode(text));
      requests.push_back(flags_.generation.request(model_.targets(), predictor_.eos_id(), length_,
                                                   answered_ + std::ssize(requests)));
    }
    const decoding::Answers answers = predictor_.answer(features(ids), std::move(requests));
    for (size_t r = 0; r < texts.size(); ++r) {
      if (flags_.format == "json") {
        print_json(texts[r], answers[r]);
        continue;
      }
      for (const decoding::Hypothesis& one : answers[r])
        print_line(text_of(one), one.score, answers[r].size() > 1);
    }
  }

  /// Without the stop string.
  std::string text_of(const decoding::Hypothesis& one) const {
    return data::decode_until(model_.targets(), one.ids(), flags_.generation.stops);
  }

  JsonText json_of(const decoding::Hypothesis& one) const {
    constexpr const char* kReasons[] = {"eos", "stop", "length"};
    JsonText json = {{"prediction", text_of(one)},
                     {"score", one.score},
                     {"finish_reason", kReasons[static_cast<size_t>(one.finish)]}};
    if (!flags_.generation.logprobs) return json;
    const auto entry = [&](int32_t token, float log_prob) -> JsonText {
      return {{"id", token},
              {"text", model_.targets()->decode(std::span(&token, 1))},
              {"logprob", json_number(static_cast<double>(log_prob))}};
    };
    json["tokens"] = JsonText::array();
    for (const decoding::TokenChoice& choice : one.tokens) {
      JsonText token = entry(choice.token, choice.model_log_prob);
      for (const decoding::TokenLogProb& other : choice.top)
        token["top"].push_back(entry(other.token, other.log_prob));
      json["tokens"].push_back(std::move(token));
    }
    return json;
  }

  void print_json(const std::string& input, const std::vector<decoding::Hypothesis>& all) const {
    JsonText json = {{"input", input}};
    json.update(json_of(all.front()));
    if (all.size() > 1)
      for (const decoding::Hypothesis& one : all) json["decodes"].push_back(json_of(one));
    print(json);
  }

  static void print(const JsonText& json) {
    fmt::print("{}\n", json.dump(-1, ' ', false, JsonText::error_handler_t::replace));
  }

  /// One line an answer, with its score if it is one of several.
  static void print_line(std::string text, float score, bool one_of_several) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    if (one_of_several) fmt::print("{:.4f}\t", score);
    fmt::print("{}\n", text);
  }

  int64_t shown(const decoding::Decodes& decodes) const {
    return std::min(decodes.num_decodes, flags_.generation.num_decodes.value_or(1));
  }
  /// Decode d counted from the best. Decoder-only rows with short inputs have room for more than
  /// asked.
  std::string text_of(const decoding::Decodes& decodes, int64_t row, int64_t d) const {
    const auto tokens = decodes.sequence(row, decodes.num_decodes - 1 - d);
    return model_.targets()->decode(
        tokens.first(std::min(tokens.size(), static_cast<size_t>(length_))));
  }
  static float score_of(const decoding::Decodes& decodes, int64_t row, int64_t d) {
    return decodes.scores[static_cast<size_t>((row + 1) * decodes.num_decodes - 1 - d)];
  }

  void print_text(const decoding::Decodes& decodes, int64_t row) const {
    const int64_t count = shown(decodes);
    for (int64_t d = 0; d < count; ++d)
      print_line(text_of(decodes, row, d), score_of(decodes, row, d), count > 1);
  }

  void print_json(const std::string& input, const decoding::Decodes& decodes, int64_t row) const {
    JsonText json = {{"input", input},
                     {"prediction", text_of(decodes, row, 0)},
                     {"score", score_of(decodes, row, 0)}};
    if (shown(decodes) > 1)
      for (int64_t d = 0; d < shown(decodes); ++d)
        json["decodes"].push_back(
            {{"prediction", text_of(decodes, row, d)}, {"score", score_of(decodes, row, d)}});
    print(json);
  }

  const GenerateFlags& flags_;
  TextModel model_;
  const Weights weights_;
  Predictor predictor_;
  const int64_t length_;
  int64_t answered_ = 0;
};

void answer_interactively(Generator& generator) {
  fmt::print(stderr, "One input a line; Ctrl-D ends.\n");
  std::string line;
  while (fmt::print(stderr, "> "), std::fflush(stderr), std::getline(std::cin, line))
    if (!line.empty()) generator.answer(std::span(&line, 1));
  fmt::print(stderr, "\n");
}

/// Answers as soon as a batch of lines is there.
void answer_lines(Generator& generator, std::istream& in, const std::string& name,
                  int64_t batch_size) {
  std::vector<std::string> lines;
  std::string line;
  while (std::getline(in, line)) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
    if (static_cast<int64_t>(lines.size()) < batch_size) continue;
    generator.answer(lines);
    lines.clear();
  }
  QT_CHECK_AS(ExitCode::kData, !in.bad(),
              "{}: cannot read all of it: {}; check that it is a file of text", name,
              std::strerror(errno));
  generator.answer(lines);
}

void add_flags(CommandLine& cli, GenerateFlags& flags) {
  CLI::App& app = cli.app();
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 30);
  app.add_option("--model_dir", flags.model_dir, "the directory of a training run, or a checkpoint")
      ->required();
  app.add_option("text", flags.texts, "inputs; without any, lines of --input or stdin");
  app.add_option("--input", flags.input, "a file of inputs, one a line; - is stdin");
  app.add_option("--format", flags.format, "text, or json: one object a line")
      ->check(CLI::IsMember({"text", "json"}));
  flags.generation.add_to(app);
  app.add_option("--max_decode_len", flags.max_decode_len, "tokens of an answer at most")
      ->check(positive);
  app.add_option("--batch_size", flags.batch_size, "inputs at a time")->check(positive);
  flags.quantize.add_to(app);
  flags.compute.add_to(app);
}

}  // namespace

int run_generate(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  const gin::CommandLine gin_line = gin::extract_command_line(left);
  GenerateFlags flags;
  CommandLine cli(
      "generate", "Answers of a trained model to texts, on stdout.",
      "quintet generate --model_dir=/tmp/numbers 'words: 1234'\n"
      "quintet generate --model_dir=/tmp/numbers --input=questions.txt --format=json\n"
      "quintet generate --model_dir=/tmp/numbers --beams=4 --num_decodes=4 'words: 17'\n"
      "quintet generate --model_dir=/tmp/numbers --format=json --logprobs=2 --stop=' ' 'words: "
      "17'\n"
      "echo 'number: ten' | quintet generate --model_dir=/tmp/numbers --temperature=0.7");
  add_flags(cli, flags);
  if (!cli.parse(left)) return 0;
  flags.generation.check();
  QT_CHECK(flags.texts.empty() || flags.input.empty(),
           "quintet generate: give inputs as arguments or with --input, not both");
  flags.compute.start();
  std::ifstream file;
  if (!flags.input.empty() && flags.input != "-") {
    file.open(flags.input);
    QT_CHECK_AS(ExitCode::kData, file.good(), "{}: cannot open; check the path", flags.input);
  }
  Generator generator(flags, gin_line.bindings);
  if (!flags.texts.empty())
    generator.answer(flags.texts);
  else if (file.is_open())
    answer_lines(generator, file, flags.input, flags.batch_size);
  else if (flags.input.empty() && isatty(STDIN_FILENO) != 0)
    answer_interactively(generator);
  else
    answer_lines(generator, std::cin, "standard input", flags.batch_size);
  return 0;
}

}  // namespace quintet
