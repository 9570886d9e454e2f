#include "models/serving/drafter.h"

#include <algorithm>

#include "models/serving/encoded_inputs.h"
#include "runtime/base/check.h"

namespace quintet::serving {
namespace {

constexpr int64_t kLongestLookup = 3;  // tokens

/// A job's inputs and, behind them, its answer so far.
struct LookupText final : DraftState {
  Tokens tokens;
  size_t inputs = 0;  // of the tokens

  void append(std::span<const int32_t> answer) {
    QT_ASSERT(inputs + answer.size() >= tokens.size());
    const auto more = answer.subspan(tokens.size() - inputs);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
};

class PromptLookup final : public Drafter {
 public:
  explicit PromptLookup(bool decoder_only) : decoder_only_(decoder_only) {}

  std::vector<std::unique_ptr<DraftState>> start(std::span<const DraftJob> jobs) override {
    std::vector<std::unique_ptr<DraftState>> states(jobs.size());
    for (size_t i = 0; i < jobs.size(); ++i) {
      auto text = std::make_unique<LookupText>();
      text->tokens = *jobs[i].inputs;
      // A decoder alone goes on from the last of its inputs.
      decoder_only_ ? text->tokens.pop_back() : text->tokens.push_back(kApart);
      text->inputs = text->tokens.size();
      states[i] = std::move(text);
    }
    return states;
  }

  void draft(std::span<DraftRequest> requests) override {
    for (DraftRequest& request : requests) {
      auto& text = static_cast<LookupText&>(*request.state);
      text.append(request.tokens);
      for (int64_t n = kLongestLookup; n > 0 && request.drafts.empty(); --n)
        if (n < std::ssize(text.tokens)) request.drafts = followers(text.tokens, n, request.most);
    }
  }

 private:
  static constexpr int32_t kApart = -1;  // no token

  /// At most `most` tokens that follow where the last n of the text first occur before.
  static Tokens followers(const Tokens& text, int64_t n, int64_t most) {
    const auto found = std::search(text.begin(), text.end() - 1, text.end() - n, text.end());
    if (found == text.end() - 1) return {};
    const auto begin = found + n, end = begin + std::min<int64_t>(most, text.end() - begin);
    return {begin, std::find(begin, end, kApart)};
  }

  const bool decoder_only_;
};

struct NetworkDraft final : DraftState {
  std::shared_ptr<const EncodedInput> input;
  std::unique_ptr<RowCaches> rows;
  Tokens read;  // tokens that the rows hold
  int64_t reserved = 0;
  MemoryBudget* budget = nullptr;
  ~NetworkDraft() override {
    if (budget != nullptr) budget->reserved -= reserved;
  }
};

class NetworkDrafter final : public Drafter {
 public:
  NetworkDrafter(std::unique_ptr<ServedNetwork> network, const EngineOptions& options)
      : network_(std::move(network)),
        max_rows_(options.max_rows),
        budget_{.limit = options.memory_bytes},
        inputs_(*network_, budget_) {}

  std::vector<std::unique_ptr<DraftState>> start(std::span<const DraftJob> jobs) override;
  void draft(std::span<DraftRequest> requests) override;
  int64_t cache_bytes() const override { return budget_.reserved; }

 private:
  /// A request and the tokens that its rows are yet to read.
  struct Unread {
    DraftRequest* request;
    NetworkDraft* state;
    Tokens tokens;
  };
  void read_some(std::vector<Unread>& unread);

  const std::unique_ptr<ServedNetwork> network_;
  const int64_t max_rows_;
  MemoryBudget budget_;
  EncodedInputs inputs_;
};

std::vector<std::unique_ptr<DraftState>> NetworkDrafter::start(std::span<const DraftJob> jobs) {
  std::vector<std::unique_ptr<DraftState>> states(jobs.size());
  std::vector<const Tokens*> tokens;
  std::vector<NetworkDraft*> made;
  int64_t input_bytes = 0;  // reserved when they are read
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Tokens& inputs = *jobs[i].inputs;
    const int64_t rows = network_->row_bytes({.rows = 1, .max_length = jobs[i].max_length});
    const int64_t more = inputs_.has(inputs) ? 0 : network_->input_bytes(inputs);
    if (!budget_.fits(rows + input_bytes + more)) continue;
    input_bytes += more;
    auto state = std::make_unique<NetworkDraft>();
    state->budget = &budget_;
    budget_.reserved += state->reserved = rows;
    tokens.push_back(&inputs);
    made.push_back(state.get());
    states[i] = std::move(state);
  }
  const auto read = inputs_.get(tokens);
  for (size_t i = 0, next = 0; i < jobs.size(); ++i) {
    if (states[i] == nullptr) continue;
    made[next]->input = read[next];
    made[next]->rows =
        network_->rows(*read[next]->cache, {.rows = 1, .max_length = jobs[i].max_length});
    ++next;
  }
  return states;
}

int32_t likeliest(const JobAnswer& answer, int64_t row, int64_t vocab) {
  if (answer.logits.empty()) return std::max(answer.top_k.indices[row * answer.top_k.width], 0);
  const auto first = answer.logits.begin() + row * vocab;
  return static_cast<int32_t>(std::max_element(first, first + vocab) - first);
}

void NetworkDrafter::draft(std::span<DraftRequest> requests) {
  std::vector<Unread> unread;
  for (DraftRequest& request : requests) {
    auto& state = static_cast<NetworkDraft&>(*request.state);
    // What was read of drafts that were dropped is overwritten; the last token is read again for what follows it.
    const auto differ =
        std::ranges::mismatch(state.read, request.tokens.first(request.tokens.size() - 1));
    state.read.erase(differ.in1, state.read.end());
    unread.push_back({&request, &state, {differ.in2, request.tokens.end()}});
  }
  while (!unread.empty()) {
    read_some(unread);
    std::erase_if(unread, [](const Unread& one) { return one.tokens.empty(); });
  }
}

/// One step. Whoever has read all has its next draft, which it reads if it is to have more.
void NetworkDrafter::read_some(std::vector<Unread>& unread) {
  std::vector<std::vector<decoding::RowStep>> steps;
  std::vector<StepJob> jobs;
  const decoding::SamplingRequest best{.best = 1};
  int64_t left = max_rows_;
  steps.reserve(unread.size());
  for (const Unread& one : unread) {
    if (left == 0) break;
    auto& rows = steps.emplace_back();
    for (size_t i = 0; i < one.tokens.size() && left > 0; ++i, --left)
      rows.push_back({.row = 0,
                      .token = one.tokens[i],
                      .position = static_cast<int32_t>(one.state->read.size() + i),
                      .source = 0});
    jobs.push_back({.rows = one.state->rows.get(), .steps = rows, .sampling_request = &best});
  }
  const std::vector<JobAnswer> answers = network_->step(jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    Unread& one = unread[i];
    const auto read = one.tokens.begin() + std::ssize(steps[i]);
    one.state->read.insert(one.state->read.end(), one.tokens.begin(), read);
    one.tokens.erase(one.tokens.begin(), read);
    if (!one.tokens.empty()) continue;
    Tokens& drafts = one.request->drafts;
    drafts.push_back(likeliest(answers[i], std::ssize(steps[i]) - 1, network_->vocab_size()));
    if (std::ssize(drafts) < one.request->most) one.tokens = {drafts.back()};
  }
}

}  // namespace

std::unique_ptr<Drafter> prompt_lookup(bool decoder_only) {
  return std::make_unique<PromptLookup>(decoder_only);
}

std::unique_ptr<Drafter> network_drafter(std::unique_ptr<ServedNetwork> network,
                                         const EngineOptions& options) {
  return std::make_unique<NetworkDrafter>(std::move(network), options);
}

}  // namespace quintet::serving
