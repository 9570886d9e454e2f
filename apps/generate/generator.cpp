#include "apps/generate/generator.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/config/decoding_config.h"
#include "apps/drafts/drafted_answers.h"
#include "apps/flags/command_line.h"
#include "apps/generate/embedder.h"
#include "apps/generate/token_ids.h"
#include "apps/interactive/lines.h"
#include "apps/model/predictor.h"
#include "apps/model/text_model.h"
#include "apps/process/inference_ranks.h"
#include "apps/process/output.h"
#include "apps/process/progress.h"
#include "apps/process/signals.h"
#include "data/vocabularies/text_stream.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

using JsonText = nlohmann::ordered_json;

/// Whole lines of text to predictions, a batch at a time.
class Generator {
 public:
  Generator(const GenerateFlags& flags, const gin::CommandLine& line, SharedMemoryGroup* ranks)
      : flags_(flags),
        model_(flags.model_dir, line, flags.ids, ranks == nullptr ? Load::to_generate : Load::part,
               flags.adapter),
        length_(flags.generation.decode.max_tokens > 0 ? flags.generation.decode.max_tokens
                                                       : model_.answer_length()),
        generation_(flags.generation) {
    if (model_.defaults()) generation_.take(*model_.defaults());
    if (!flags.target.empty()) target_ = target_ids();
    if (ranks == nullptr || ranks->leads())
      fmt::print(stderr, "{} at step {}, at most {} tokens\n", model_.trained().model_dir.string(),
                 model_.trained().step, length_);
    generation_.drafts.tokens() == 0 ? pack(ranks) : guess(ranks);
  }

  /// Prints what the model answers to each text, in order.
  void answer(std::span<const std::string> texts) {
    const auto size = static_cast<size_t>(flags_.batch_size);
    for (size_t i = 0; i < texts.size(); i += size) {
      const auto some = texts.subspan(i, std::min(size, texts.size() - i));
      answers_requests() ? answer_requests(some) : answer_batch(some);
      flush_output();
      answered_ += std::ssize(some);
    }
  }
  /// What is worth saying once all is answered; empty: nothing.
  std::string summary() const { return drafted_ && answered_ > 0 ? drafted_->text() : ""; }

 private:
  void guess(SharedMemoryGroup* ranks) {
    check_guessed();
    QT_CHECK(ranks == nullptr || Device::current().is_cpu() ||
                 generation_.drafts.assistant_model.empty(),
             "quintet generate: --assistant_model on GPUs that hold a model together would guess "
             "on each "
             "for itself; give --prompt_lookup_num_tokens, or one rank");
    const int64_t given = flags_.texts.empty() ? flags_.batch_size : std::ssize(flags_.texts);
    drafted_.emplace(generation_.drafts, model_, flags_.quantize.type(),
                     DraftedAnswers::Limits{.batch = std::min(flags_.batch_size, given),
                                            .max_length = length_,
                                            .cache_type = flags_.cache.type()},
                     ranks);
  }
  void pack(SharedMemoryGroup* ranks) {
    const Weights weights =
        weights_to_generate(flags_.quantize.type(), model_.trained().reader, ranks);
    predictor_.emplace(model_.configured(), flags_.generation.decode, weights, flags_.cache.type());
    drop_packed(*model_.configured().model, weights);
  }
  bool asks_for_requests() const {
    return flags_.ids || !target_.empty() || model_.defaults() || generation_.makes_requests();
  }
  /// Guesses are checked by a greedy search or by samples that flags ask for, not by a decode function of the run's.
  void check_guessed() const {
    if (asks_for_requests() || generation_.decode.beams) return;
    const decoding::DecodeFn fn = configured_decode_fn(model_.configured(), model_.decoder_only());
    const auto* beam = std::get_if<decoding::BeamOptions>(&fn);
    const auto* sample = std::get_if<decoding::SampleOptions>(&fn);
    QT_CHECK(
        (beam != nullptr && beam->num_decodes == 1) ||
            (sample != nullptr && sample->num_decodes == 1 && sample->topk == 1),
        "quintet generate: the run's decode_fn searches or draws otherwise than greedily, which "
        "--assistant_model and --prompt_lookup_num_tokens do not guess for; give --beams=1 for "
        "greedy answers, or leave these out");
  }
  /// As transformers' generate answers them; else by the decode function of the run's configuration.
  bool answers_requests() const { return drafted_ || asks_for_requests(); }
  std::vector<int32_t> input_ids(const std::string& text) const {
    return flags_.ids ? parse_token_ids(text, "an input", vocab_size()) : model_.encode(text);
  }
  std::vector<int32_t> target_ids() const {
    if (flags_.ids) return parse_token_ids(flags_.target, "--target", vocab_size());
    std::vector<int32_t> ids = model_.targets()->encode(flags_.target);
    ids.push_back(model_.eos_id());
    return ids;
  }
  int64_t vocab_size() const { return model_.configured().model->vocab_size(); }

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
    const decoding::Decodes decodes = predictor_->predict(features(ids));
    for (size_t r = 0; r < texts.size(); ++r)
      flags_.format.is_json() ? print_json(texts[r], decodes, static_cast<int64_t>(r))
                              : print_text(decodes, static_cast<int64_t>(r));
  }

  void answer_requests(std::span<const std::string> texts) {
    std::vector<std::vector<int32_t>> ids;
    std::vector<decoding::DecodingRequest> requests;
    for (const std::string& text : texts) {
      ids.push_back(input_ids(text));
      requests.push_back(generation_.request(model_.targets(), model_.eos_ids(), length_,
                                             answered_ + std::ssize(requests)));
      requests.back().targets = target_;
    }
    const decoding::Answers answers = drafted_
                                          ? drafted_->answer(ids, std::move(requests))
                                          : predictor_->answer(features(ids), std::move(requests));
    for (size_t r = 0; r < texts.size(); ++r) {
      if (flags_.format.is_json()) {
        print_json(flags_.ids ? JsonText{{"input_ids", ids[r]}} : JsonText{{"input", texts[r]}},
                   answers[r]);
        continue;
      }
      for (const decoding::Hypothesis& one : answers[r])
        print_line(text_of(one), one.score, answers[r].size() > 1 || !target_.empty());
    }
  }

  /// Without the stop string.
  std::string text_of(const decoding::Hypothesis& one) const {
    if (flags_.ids) return fmt::format("{}", fmt::join(one.ids(), " "));
    return data::decode_until(model_.targets(), one.ids(), generation_.stops);
  }

  JsonText json_of(const decoding::Hypothesis& one) const {
    constexpr const char* kReasons[] = {"eos", "stop", "length"};
    JsonText json;
    if (flags_.ids)
      json["ids"] = one.ids();
    else
      json[target_.empty() ? "prediction" : "target"] = text_of(one);
    json["score"] = one.score;
    if (target_.empty()) json["finish_reason"] = kReasons[static_cast<size_t>(one.finish)];
    if (!generation_.logprobs) return json;
    const auto entry = [&](int32_t token, float log_prob) -> JsonText {
      JsonText json_entry = {{"id", token}};
      if (model_.targets() != nullptr)
        json_entry["text"] = model_.targets()->decode(std::span(&token, 1));
      json_entry["logprob"] = json_number(static_cast<double>(log_prob));
      return json_entry;
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

  void print_json(JsonText json, const std::vector<decoding::Hypothesis>& all) const {
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
    if (one_of_several) fmt::print("{:.6g}\t", score);
    fmt::print("{}\n", text);
  }

  int64_t shown(const decoding::Decodes& decodes) const {
    return std::min(decodes.num_decodes, generation_.num_decodes.value_or(1));
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
  const int64_t length_;
  GenerationFlags generation_;
  std::optional<Predictor> predictor_;     // or
  std::optional<DraftedAnswers> drafted_;  // where tokens are guessed
  decoding::TokenList target_;             // a given answer, to be scored
  int64_t answered_ = 0;
};

using Answer = std::function<void(std::span<const std::string>)>;

/// Ctrl-C takes back what is typed; another signal ends it.
void answer_interactively(const Answer& answer) {
  StopRequests stop({});
  stop.let_interrupts_stop_commands();
  fmt::print(stderr, "One input a line; Ctrl-C takes a line back, Ctrl-D ends.\n");
  const auto lines = lines_of(STDIN_FILENO, [&] { return stop.reason().has_value(); });
  std::string line;
  for (;;) {
    const Lines::Kind kind = lines->next("> ", line);
    if (kind == Lines::Kind::line && !line.empty()) answer(std::span(&line, 1));
    if (kind == Lines::Kind::end) break;
    if (stop.reason() && !stop.take_interrupt()) break;
  }
  fmt::print(stderr, "\n");
}

/// Of a file that can be read twice; 0: not known.
int64_t lines_in(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return 0;
  std::ifstream in(file);
  std::string line;
  int64_t count = 0;
  while (std::getline(in, line)) ++count;
  return count;
}

/// Answers as soon as a batch of lines is there. A bar would disturb answers on a terminal.
void answer_lines(const Answer& answer, std::istream& in, const std::string& name,
                  int64_t batch_size) {
  std::vector<std::string> lines;
  std::string line;
  const int64_t total = isatty(STDOUT_FILENO) == 0 ? lines_in(name) : 0;
  int64_t answered = 0;
  PartsProgress progress;
  const auto answer_all = [&] {
    answer(lines);
    answered += std::ssize(lines);
    if (total > 0) progress.update("generate", answered, std::max(total, answered), "lines");
    lines.clear();
  };
  while (std::getline(in, line)) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
    if (static_cast<int64_t>(lines.size()) < batch_size) continue;
    answer_all();
  }
  QT_CHECK_AS(ExitCode::kData, !in.bad(),
              "{}: cannot read all of it: {}; check that it is a file of text", name,
              std::strerror(errno));
  answer_all();
}

/// Of all inputs that the flags name.
void answer_inputs(const GenerateFlags& flags, const Answer& answer, std::ifstream& file) {
  if (!flags.texts.empty())
    answer(flags.texts);
  else if (file.is_open())
    answer_lines(answer, file, flags.input, flags.batch_size);
  else if (flags.input.empty() && isatty(STDIN_FILENO) != 0)
    answer_interactively(answer);
  else
    answer_lines(answer, std::cin, "standard input", flags.batch_size);
}

/// The same on ranks that hold the model together: the first reads, all compute, the first prints. An empty
/// message is the end.
void answer_together(const GenerateFlags& flags, SharedMemoryGroup& ranks, const Answer& answer,
                     std::ifstream& file) {
  using Json = nlohmann::json;
  if (ranks.leads()) {
    answer_inputs(
        flags,
        [&](std::span<const std::string> texts) {
          const auto bytes = Json::to_msgpack(Json(std::vector(texts.begin(), texts.end())));
          ranks.of_leader({bytes.begin(), bytes.end()});
          answer(texts);
        },
        file);
    ranks.of_leader("");
    return;
  }
  QT_ASSERT(std::freopen("/dev/null", "w", stdout) != nullptr);
  for (std::string bytes = ranks.of_leader(""); !bytes.empty(); bytes = ranks.of_leader(""))
    answer(Json::from_msgpack(bytes).get<std::vector<std::string>>());
}

}  // namespace

void generate(const GenerateFlags& flags, const Ranks& ranks, const gin::CommandLine& line) {
  const InferenceRanks division(ranks, ranks.size());
  std::ifstream file;
  if (ranks.leads() && !flags.input.empty() && flags.input != "-") {
    file.open(flags.input);
    QT_CHECK_AS(ExitCode::kData, file.good(), "{}: cannot open; check the path", flags.input);
  }
  const auto answer_with = [&](auto& with) {
    const Answer answer = [&](std::span<const std::string> texts) { with.answer(texts); };
    if (division.group() == nullptr)
      answer_inputs(flags, answer, file);
    else
      answer_together(flags, *division.group(), answer, file);
  };
  if (flags.embed.empty()) {
    Generator generator(flags, line, division.group());
    answer_with(generator);
    if (const std::string summary = generator.summary(); ranks.leads() && !summary.empty())
      fmt::print(stderr, "{}\n", summary);
  } else {
    Embedder embedder(flags, line, division.group());
    answer_with(embedder);
  }
}

void GenerateFlags::take_model() {
  if (!model_dir.empty()) return;
  const bool is_first =
      !texts.empty() && is_there(std::filesystem::path(mapped_path(texts.front())));
  QT_CHECK(is_first, "quintet generate: no model; name its directory with --model_dir=DIR{}",
           texts.empty()
               ? ", or before the texts"
               : fmt::format(", or before the texts; '{}' is no file or folder", texts.front()));
  model_dir = texts.front();
  texts.erase(texts.begin());
}

void GenerateFlags::check_embed() const {
  if (embed.empty()) return;
  QT_CHECK(target.empty() && !generation.makes_requests() && generation.decode.text().empty() &&
               generation.drafts.tokens() == 0,
           "quintet generate: --embed gives no answers; leave out --target and what is said of "
           "answers");
  QT_CHECK(
      !cache.is_given(),
      "quintet generate: --kv_cache_dtype={} is of answers, and --embed gives none: an encoder "
      "keeps no keys and values; leave the flag out",
      cache.name);
}

}  // namespace quintet
