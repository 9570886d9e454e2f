#include "models/decoding/search/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "models/decoding/search/select.h"

namespace quintet::decoding {

float brevity_penalty(float alpha, float length) { return std::pow((5.0f + length) / 6.0f, alpha); }

namespace {

/// One continuation of one beam: log probability of the whole sequence, and where it comes from.
struct Candidate {
  float log_prob = 0;
  int64_t index = 0;  // beam * vocab + token
};

bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.log_prob > b.log_prob || (a.log_prob == b.log_prob && a.index < b.index);
}

struct Beam {
  std::vector<int32_t> tokens;  // [width], column 0 the start token
  float score = kNegInf;        // live: log probability; finished: divided by the penalty
  bool finished = false;
};

struct Item {
  std::vector<Beam> live, finished;  // by increasing score
  std::vector<int32_t> sources;      // of each live beam: the beam it continues
  int32_t prompt_length = 0;         // initial_index
  bool settled = false;              // no later step can change its finished beams
};

/// Appends the best `count` continuations of one row, ranked as jax.lax.top_k ranks
/// live + log_softmax(logits).
void append_candidates(const RowSelection& row, float live, int64_t beam, int64_t vocab,
                       int64_t count, std::vector<Candidate>& out) {
  const auto begin = static_cast<std::ptrdiff_t>(out.size());
  for (size_t i = 0; i < row.candidates.size(); ++i)
    out.push_back(
        {row.summary.log_softmax(row.values[i]) + live, beam * vocab + row.candidates[i]});
  std::sort(out.begin() + begin, out.end(), ranks_before);
  out.resize(std::min<size_t>(out.size(), static_cast<size_t>(begin + count)));
}

/// A beam that is only there to fill its place: before the first step, inside a prompt.
bool is_dead(float live) { return live < kNegInf / 2; }

class BeamSearch {
 public:
  BeamSearch(const Prompts& inputs, TokenModel& model, int32_t eos_id, const BeamOptions& options)
      : inputs_(inputs), model_(model), eos_id_(eos_id), options_(options) {
    inputs.check();
    beams_ = options.num_decodes;
    QT_CHECK(beams_ > 0, "beam_search: num_decodes {} must be positive", beams_);
    const int64_t length = options.max_decode_len.value_or(inputs.length);
    QT_CHECK(length > 0 && length <= inputs.length,
             "beam_search: max_decode_len {} must lie between 1 and the inputs' length {}", length,
             inputs.length);
    width_ = length + 1;
    penalty_at_end_ = brevity_penalty(options.alpha, static_cast<float>(width_));
    start();
  }

  Decodes run() {
    if (!run_on_model())
      while (goes_on()) step();
    return result();
  }

 private:
  void start() {
    items_.resize(static_cast<size_t>(inputs_.batch));
    forced_.assign(static_cast<size_t>(inputs_.batch * width_), 0);
    for (int64_t i = 0; i < inputs_.batch; ++i) {
      Item& item = items_[static_cast<size_t>(i)];
      const Beam empty{std::vector<int32_t>(static_cast<size_t>(width_), 0), kNegInf, false};
      item.live.assign(static_cast<size_t>(beams_), empty);
      item.finished.assign(static_cast<size_t>(beams_), empty);
      item.live.front().score = 0;
      if (options_.initial_index) {
        QT_CHECK(static_cast<int64_t>(options_.initial_index->size()) == inputs_.batch,
                 "beam_search: initial_index must have one element for each of {} items",
                 inputs_.batch);
        item.prompt_length = (*options_.initial_index)[static_cast<size_t>(i)];
        for (Beam& beam : item.live) beam.tokens[0] = last_prompt_token(i);
      } else {
        // The last step reads one place past the inputs, which JAX clamps to their last token.
        for (int64_t t = 0; t < width_; ++t)
          forced_[static_cast<size_t>(i * width_ + t)] =
              inputs_.at(i, std::min(t, inputs_.length - 1));
      }
    }
    shortest_prompt_ = items_.front().prompt_length;
    for (const Item& item : items_)
      shortest_prompt_ = std::min<int64_t>(shortest_prompt_, item.prompt_length);
  }

  int32_t last_prompt_token(int64_t item) const {
    for (int64_t t = inputs_.length; t-- > 0;)
      if (inputs_.at(item, t) != 0) return inputs_.at(item, t);
    return 0;
  }

  /// Best score a live beam can still reach, as T5X bounds it: the penalty of the longest sequence.
  float best_live(const Item& item) const { return item.live.back().score / penalty_at_end_; }

  bool cannot_improve(const Item& item) const {
    float worst = std::numeric_limits<float>::infinity();
    for (const Beam& beam : item.finished) worst = std::min(worst, beam.score);
    return std::all_of(item.finished.begin(), item.finished.end(), [&](const Beam& beam) {
      return (beam.finished ? worst : kNegInf) > best_live(item);
    });
  }

  bool goes_on() {
    if (index_ + shortest_prompt_ >= width_ - 1) return false;
    if (options_.max_decode_step > 0 && index_ >= options_.max_decode_step) return false;
    bool all_settled = true, none_passes = index_ > 0;
    for (Item& item : items_) {
      const bool done = item.settled || cannot_improve(item);
      item.settled = done && may_rest();
      all_settled = all_settled && done;
      if (best_live(item) >= options_.min_log_prob / penalty_at_end_) none_passes = false;
    }
    return !all_settled && !none_passes;
  }

  /// The same search where the model lies, if it can.
  bool run_on_model() {
    int64_t steps = width_ - 1 - shortest_prompt_;
    if (options_.max_decode_step > 0) steps = std::min(steps, options_.max_decode_step);
    if (!may_rest() || steps <= 0) return false;
    std::vector<int32_t> first_tokens, prompt_lengths;
    for (const Item& item : items_) {
      first_tokens.push_back(item.live.front().tokens[0]);
      prompt_lengths.push_back(item.prompt_length);
    }
    std::vector<float> penalties;
    const int32_t longest = *std::max_element(prompt_lengths.begin(), prompt_lengths.end());
    for (int64_t length = 0; length <= longest + width_; ++length)
      penalties.push_back(brevity_penalty(options_.alpha, static_cast<float>(length)));
    const std::optional<BeamTrace> trace = model_.run_beams({.items = inputs_.batch,
                                                             .beams = beams_,
                                                             .width = width_,
                                                             .steps = steps,
                                                             .eos_id = eos_id_,
                                                             .first_tokens = first_tokens,
                                                             .forced = forced_,
                                                             .prompt_lengths = prompt_lengths,
                                                             .penalties = penalties,
                                                             .penalty_at_end = penalty_at_end_});
    if (trace) take_over(*trace);
    return trace.has_value();
  }

  void take_over(const BeamTrace& trace) {
    const auto beams = static_cast<size_t>(beams_), rows = items_.size() * beams;
    for (size_t i = 0; i < items_.size(); ++i) {
      Item& item = items_[i];
      const std::vector<int32_t> empty = [&] {
        std::vector<int32_t> tokens(static_cast<size_t>(width_), 0);
        tokens[0] = item.live.front().tokens[0];
        return tokens;
      }();
      // What beam `beam` had written before step `step`.
      const auto written = [&](int64_t step, size_t beam) {
        std::vector<int32_t> tokens = empty;
        for (; step > 0; --step) {
          const size_t at = static_cast<size_t>(step - 1) * rows + i * beams + beam;
          tokens[static_cast<size_t>(step)] = trace.tokens[at];
          beam = static_cast<size_t>(trace.parents[at]);
        }
        return tokens;
      };
      for (size_t b = 0; b < beams; ++b) {
        item.live[b] = {written(trace.steps[i], b), trace.live[i * beams + b], false};
        const FinishedBeam& ended = trace.finished[i * beams + b];
        if (ended.step < 0) continue;  // as it was
        item.finished[b] = {written(ended.step, static_cast<size_t>(ended.parent)), ended.score,
                            ended.has_ended != 0};
        item.finished[b].tokens[static_cast<size_t>(ended.step) + 1] = ended.token;
      }
    }
  }

  /// Whether items rest once no step can change them: the bound is one only if longer sequences are not
  /// penalised more, and the test of min_log_prob needs every item's live beams.
  bool may_rest() const { return options_.alpha >= 0 && options_.min_log_prob <= kNegInf; }

  void step() {
    std::vector<int32_t> rows, tokens, positions, sources;
    std::vector<size_t> active;
    for (size_t i = 0; i < items_.size(); ++i) {
      const Item& item = items_[i];
      if (item.settled) continue;
      active.push_back(i);
      for (size_t b = 0; b < item.live.size(); ++b) {
        const auto first = static_cast<int32_t>(i * item.live.size());
        rows.push_back(first + static_cast<int32_t>(b));
        tokens.push_back(item.live[b].tokens[static_cast<size_t>(index_)]);
        positions.push_back(static_cast<int32_t>(item.prompt_length + index_));
        sources.push_back(first +
                          (item.sources.empty() ? static_cast<int32_t>(b) : item.sources[b]));
      }
    }
    model_.step_without_logits(
        {.rows = rows, .tokens = tokens, .positions = positions, .sources = sources});
    // Dead beams matter only where the others have too few continuations. Looking at them is dear:
    // at -1e7 rounding makes most of a vocabulary equal.
    std::vector<std::vector<Candidate>> best = best_candidates(active, false);
    if (std::any_of(best.begin(), best.end(), [&](const auto& b) {
          return b.size() < static_cast<size_t>(2 * beams_) || is_dead(b.back().log_prob);
        }))
      best = best_candidates(active, true);
    for (size_t a = 0; a < active.size(); ++a) {
      QT_CHECK_AS(ExitCode::kData, best[a].size() >= static_cast<size_t>(2 * beams_),
                  "beam_search: {} of the {} continuations looked at have numbers for logits, in a "
                  "vocabulary of {}; are there NaNs among the parameters?",
                  best[a].size(), 2 * beams_, model_.vocab_size());
      advance(active[a], best[a], model_.vocab_size());
    }
    ++index_;
  }

  /// The 2 * beams best continuations of each active item, best first.
  std::vector<std::vector<Candidate>> best_candidates(std::span<const size_t> active,
                                                      bool with_dead_beams) const {
    const auto beams = static_cast<size_t>(beams_);
    std::vector<float> offsets;
    for (size_t i : active)
      for (const Beam& beam : items_[i].live)
        offsets.push_back(is_dead(beam.score) && !with_dead_beams ? 0 : beam.score);
    const std::vector<RowSelection> selected =
        model_.select_last({.count = 2 * beams_, .offsets = offsets});
    std::vector<std::vector<Candidate>> all(active.size());
    for (size_t a = 0; a < active.size(); ++a) {
      for (size_t b = 0; b < beams; ++b) {
        const float live = items_[active[a]].live[b].score;
        const size_t row = a * beams + b;
        if (!is_dead(live) || with_dead_beams)
          append_candidates(selected[row], live, static_cast<int64_t>(b), model_.vocab_size(),
                            2 * beams_, all[a]);
      }
      std::sort(all[a].begin(), all[a].end(), ranks_before);
      all[a].resize(std::min(all[a].size(), 2 * beams));
    }
    return all;
  }

  /// Extends the item's beams by its 2 * beams best candidates (best first).
  void advance(size_t which, const std::vector<Candidate>& best, int64_t vocab) {
    Item& item = items_[which];
    const size_t next = static_cast<size_t>(index_) + 1;
    const int32_t forced = forced_[which * static_cast<size_t>(width_) + next];
    std::vector<Beam> extended;
    std::vector<int32_t> sources;
    for (size_t c = 0; c < best.size(); ++c) {
      const auto source = static_cast<size_t>(best[c].index / vocab);
      Beam beam = item.live[source];
      beam.tokens[next] = forced != 0 ? forced : static_cast<int32_t>(best[c].index % vocab);
      // Inside the prompt all candidates are the same sequence: one stays alive.
      beam.score = forced == 0 ? best[c].log_prob : (c == 0 ? 0.0f : kNegInf);
      beam.finished = beam.tokens[next] == eos_id_;
      extended.push_back(std::move(beam));
      sources.push_back(static_cast<int32_t>(source));
    }
    // A candidate that ended enters the live set only if nothing else is left.
    std::vector<size_t> order(extended.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto live_score = [&](size_t c) {
      return extended[c].score + (extended[c].finished ? kNegInf : 0.0f);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return live_score(a) > live_score(b); });
    std::vector<Beam> live;
    std::vector<int32_t> live_sources;
    for (size_t b = static_cast<size_t>(beams_); b-- > 0;) {
      Beam beam = extended[order[b]];
      beam.score = live_score(order[b]);
      beam.finished = false;
      live.push_back(std::move(beam));
      live_sources.push_back(sources[order[b]]);
    }
    finish(item, extended);
    item.live = std::move(live);
    item.sources = std::move(live_sources);
  }

  /// Merges the candidates that ended into the item's finished beams.
  void finish(Item& item, std::vector<Beam>& extended) const {
    const float penalty =
        brevity_penalty(options_.alpha, static_cast<float>(item.prompt_length + index_ + 1));
    std::vector<Beam> all = std::move(item.finished);
    for (Beam& beam : extended) {
      beam.score = beam.score / penalty + (beam.finished ? 0.0f : kNegInf);
      all.push_back(std::move(beam));
    }
    std::vector<size_t> order(all.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return all[a].score > all[b].score; });
    item.finished.clear();
    for (size_t b = static_cast<size_t>(beams_); b-- > 0;)
      item.finished.push_back(std::move(all[order[b]]));
  }

  /// Output tokens of one beam: the prompt that was prefilled, then what was written, cut to
  /// length.
  void append_output(int64_t i, const Beam& beam, std::vector<int32_t>& out) const {
    std::vector<int32_t> tokens;
    if (options_.initial_index) {
      // T5X strips leading padding only: zeros inside the prompt stay.
      int64_t last = inputs_.length;
      while (last > 0 && inputs_.at(i, last - 1) == 0) --last;
      for (int64_t t = 0; t < last; ++t) tokens.push_back(inputs_.at(i, t));
      tokens.insert(tokens.end(), beam.tokens.begin() + 1, beam.tokens.end());
      const auto first = std::find_if(tokens.begin(), tokens.end(), [](int32_t t) { return t; });
      if (first != tokens.end()) tokens.erase(tokens.begin(), first);
    } else {
      tokens.assign(beam.tokens.begin() + 1, beam.tokens.end());
    }
    tokens.resize(static_cast<size_t>(width_ - 1), 0);
    out.insert(out.end(), tokens.begin(), tokens.end());
  }

  Decodes result() const {
    Decodes out{.batch = inputs_.batch,
                .num_decodes = beams_,
                .length = width_ - 1,
                .tokens = {},
                .scores = {}};
    for (int64_t i = 0; i < inputs_.batch; ++i) {
      const Item& item = items_[static_cast<size_t>(i)];
      const bool any = std::any_of(item.finished.begin(), item.finished.end(),
                                   [](const Beam& beam) { return beam.finished; });
      for (const Beam& beam : any ? item.finished : item.live) {
        append_output(i, beam, out.tokens);
        out.scores.push_back(beam.score);
      }
    }
    return out;
  }

  const Prompts& inputs_;
  TokenModel& model_;
  const int32_t eos_id_;
  const BeamOptions& options_;
  int64_t beams_ = 0, width_ = 0, index_ = 0, shortest_prompt_ = 0;
  float penalty_at_end_ = 1;
  std::vector<Item> items_;
  std::vector<int32_t> forced_;  // [batch, width] prompt tokens, 0 where the search is free
};

}  // namespace

Decodes beam_search(const Prompts& inputs, TokenModel& model, int32_t eos_id,
                    const BeamOptions& options) {
  return BeamSearch(inputs, model, eos_id, options).run();
}

}  // namespace quintet::decoding
