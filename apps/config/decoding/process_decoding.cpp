#include "apps/config/decoding/process_decoding.h"

#include <cstring>
#include <nlohmann/json.hpp>

namespace quintet {
namespace {

using data::Workers;
using decoding::Decodes;
using decoding::OwnDecodeFn;
using decoding::Prompts;
using decoding::SamplingState;
using decoding::StepInput;
using decoding::TokenModel;
using JsonText = nlohmann::ordered_json;

std::vector<int32_t> ids_of(const Json& json, int64_t limit) {
  std::vector<int32_t> ids;
  for (const int64_t id : json.as_ints()) {
    QT_CHECK_AS(ExitCode::kData, id >= 0 && id < limit,
                "{}: expected numbers from 0 to {}, found {}", json.path(), limit - 1, id);
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

JsonText rows_json(std::span<const int32_t> values, int64_t columns) {
  JsonText rows = JsonText::array();
  for (auto at = values.begin(); at < values.end(); at += columns)
    rows.push_back(std::vector<int32_t>(at, at + columns));
  return rows;
}

std::string bytes_of(std::span<const float> logits) {
  return {reinterpret_cast<const char*>(logits.data()), logits.size_bytes()};
}

/// A step that a function asks for, and what the rows held before it.
class Rows {
 public:
  Rows(const Prompts& prompts, const OwnDecodeFn& fn, int64_t vocab_size)
      : decodes_(fn.num_decodes),
        length_(prompts.length),
        vocab_size_(vocab_size),
        held_(static_cast<size_t>(prompts.batch * fn.num_decodes), 0) {
    for (size_t row = 0; fn.initial_index && row < held_.size(); ++row)
      held_[row] = (*fn.initial_index)[row / static_cast<size_t>(decodes_)];
    written_ = held_;
  }

  /// Throws kData unless every row reads the token behind those that its source holds, at a place of its own.
  StepInput step(const Json& json) {
    rows_ = ids_of(json["rows"], std::ssize(held_));
    tokens_ = ids_of(json["tokens"], vocab_size_);
    positions_ = ids_of(json["positions"], length_);
    sources_ = json.has("sources") ? ids_of(json["sources"], std::ssize(held_)) : rows_;
    QT_CHECK_AS(ExitCode::kData,
                !rows_.empty() && tokens_.size() == rows_.size() &&
                    positions_.size() == rows_.size() && sources_.size() == rows_.size(),
                "{}: {} rows, {} tokens, {} positions and {} sources; expected as many of each",
                json.path(), rows_.size(), tokens_.size(), positions_.size(), sources_.size());
    const std::vector<int32_t> before = held_;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const auto row = static_cast<size_t>(rows_[i]), source = static_cast<size_t>(sources_[i]);
      QT_CHECK_AS(ExitCode::kData, i == 0 || rows_[i] > rows_[i - 1],
                  "{}.rows: {} after {}; expected rows in increasing order", json.path(), rows_[i],
                  rows_[i - 1]);
      QT_CHECK_AS(ExitCode::kData, rows_[i] / decodes_ == sources_[i] / decodes_,
                  "{}: row {} continues row {}, which is of another input", json.path(), row,
                  source);
      QT_CHECK_AS(ExitCode::kData,
                  positions_[i] == before[source] && positions_[i] >= written_[row],
                  "{}: row {} at position {}; its source {} holds {} tokens, and it has written {}",
                  json.path(), row, positions_[i], source, before[source], written_[row]);
      held_[row] = written_[row] = positions_[i] + 1;
    }
    return {.rows = rows_, .tokens = tokens_, .positions = positions_, .sources = sources_};
  }

 private:
  int64_t decodes_, length_, vocab_size_;
  std::vector<int32_t> held_, written_;  // tokens of each row's past, and places that it has used
  std::vector<int32_t> rows_, tokens_, positions_, sources_;
};

Decodes decodes_of(const Json& answer, const Prompts& prompts, int64_t num_decodes,
                   int64_t vocab_size) {
  Decodes out{.batch = prompts.batch,
              .num_decodes = num_decodes,
              .length = prompts.length,
              .tokens = {},
              .scores = {}};
  const auto check_size = [](const Json& json, int64_t size) {
    QT_CHECK_AS(ExitCode::kData, std::ssize(json.items()) == size,
                "{}: expected {} items, found {}", json.path(), size, json.size());
  };
  check_size(answer["decodes"], out.batch);
  check_size(answer["scores"], out.batch);
  for (const Json& item : answer["decodes"].items()) {
    check_size(item, num_decodes);
    for (const Json& sequence : item.items()) {
      std::vector<int32_t> ids = ids_of(sequence, vocab_size);
      QT_CHECK_AS(ExitCode::kData, std::ssize(ids) <= out.length,
                  "{}: {} tokens, expected {} at most", sequence.path(), ids.size(), out.length);
      ids.resize(static_cast<size_t>(out.length), 0);
      out.tokens.insert(out.tokens.end(), ids.begin(), ids.end());
    }
  }
  for (const Json& item : answer["scores"].items()) {
    check_size(item, num_decodes);
    for (const double score : item.as_doubles()) out.scores.push_back(static_cast<float>(score));
  }
  return out;
}

JsonText state_json(const SamplingState& state) {
  JsonText log_probs = JsonText::array();
  for (const float log_prob : state.log_prob)
    log_probs.push_back(json_number(static_cast<double>(log_prob)));
  return {{"step", state.step},
          {"cur_index", state.cur_index},
          {"sequences", rows_json(state.sequences, state.length + 2)},
          {"cur_token", state.cur_token},
          {"ended", state.ended},
          {"log_prob", log_probs}};
}

template <typename T, typename From>
void assign(std::vector<T>& to, const std::vector<From>& values, const Json& json) {
  QT_CHECK_AS(ExitCode::kData, to.size() == values.size(), "{}: expected {} values, found {}",
              json.path(), to.size(), values.size());
  std::transform(values.begin(), values.end(), to.begin(),
                 [](From value) { return static_cast<T>(value); });
}

}  // namespace

OwnDecodeFn process_decode_fn(data::WorkersPtr workers, int64_t num_decodes) {
  const auto search = [workers = std::move(workers)](const Prompts& prompts, TokenModel& model,
                                                     int32_t eos_id, const OwnDecodeFn& fn) {
    JsonText about = {{"inputs", rows_json(prompts.tokens, prompts.length)},
                      {"eos_id", eos_id},
                      {"num_decodes", fn.num_decodes},
                      {"seed", fn.decode_rng.a ^ fn.decode_rng.b},
                      {"vocab_size", model.vocab_size()},
                      {"initial_index", nullptr}};
    if (fn.initial_index) about["initial_index"] = *fn.initial_index;
    Rows rows(prompts, fn, model.vocab_size());
    Decodes decodes;
    const auto next = [&](const Json& answer, const auto&) -> std::optional<Workers::Request> {
      if (!answer.has("step")) {
        decodes = decodes_of(answer, prompts, fn.num_decodes, model.vocab_size());
        return std::nullopt;
      }
      const StepInput input = rows.step(answer["step"]);
      const std::span<const float> logits = model.step(input);
      const JsonText shape = {{"logits", {input.rows.size(), model.vocab_size()}}};
      return Workers::Request{shape.dump(), bytes_of(logits)};
    };
    workers->converse({JsonText{{"decode", about}}.dump(), ""}, next);
    return decodes;
  };
  return {.num_decodes = num_decodes, .decode_rng = {}, .initial_index = {}, .search = search};
}

std::function<void(SamplingState&)> process_state_callback(data::WorkersPtr workers,
                                                           int64_t vocab_size) {
  return [workers = std::move(workers), vocab_size](SamplingState& state) {
    const auto take = [&](const Json& answer, const auto&) {
      const Json made = answer["state"];
      QT_CHECK_AS(ExitCode::kData,
                  made["cur_index"].as_ints() ==
                      std::vector<int64_t>(state.cur_index.begin(), state.cur_index.end()),
                  "{}: is another one; a callback does not move rows", made["cur_index"].path());
      std::vector<int32_t> sequences;
      for (const Json& row : made["sequences"].items())
        std::ranges::copy(ids_of(row, vocab_size), std::back_inserter(sequences));
      assign(state.sequences, sequences, made["sequences"]);
      assign(state.cur_token, ids_of(made["cur_token"], vocab_size), made["cur_token"]);
      assign(state.ended, ids_of(made["ended"], 2), made["ended"]);
      assign(state.log_prob, made["log_prob"].as_doubles(), made["log_prob"]);
      state.step = made["step"].as_int();
    };
    workers->ask(JsonText{{"state_callback", state_json(state)}}.dump(), "", take);
  };
}

std::function<void(std::span<float>, const SamplingState&)> process_logit_callback(
    data::WorkersPtr workers) {
  return [workers = std::move(workers)](std::span<float> logits, const SamplingState& state) {
    const std::vector<int64_t> shape = {std::ssize(state.cur_token),
                                        std::ssize(logits) / std::ssize(state.cur_token)};
    const auto take = [&](const Json& answer, const Workers::ReadBytes& read) {
      QT_CHECK_AS(ExitCode::kData, answer["logits"].as_ints() == shape,
                  "{}: expected the shape [{}] of those that it was given", answer["logits"].path(),
                  fmt::join(shape, ", "));
      std::memcpy(logits.data(), read(std::ssize(logits) * 4).data(), logits.size_bytes());
    };
    workers->ask(JsonText{{"logit_callback", state_json(state)}, {"logits", shape}}.dump(),
                 bytes_of(logits), take);
  };
}

}  // namespace quintet
