#include "models/serving/engine.h"

#include <algorithm>

#include "runtime/base/clock.h"
#include "runtime/base/memory/out_of_memory.h"

namespace quintet::serving {
namespace {

constexpr int kMostFailures = 3;

/// Or bad_alloc: a job must not be lost because there is no memory to say why it ends.
std::exception_ptr refusal(Refused::Reason reason, const char* message) noexcept {
  try {
    return std::make_exception_ptr(Refused(reason, message));
  } catch (...) {
    return std::current_exception();
  }
}

bool out_of_memory(const std::exception_ptr& error) {
  try {
    if (error != nullptr) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const OutOfMemory&) {
    return true;
  } catch (...) {
  }
  return false;
}

}  // namespace

/// A job in the batch, with what it holds.
struct Engine::Running {
  uint64_t id = 0;
  Job job;
  std::shared_ptr<const EncodedInput> input;
  std::unique_ptr<RowCaches> rows;
  std::unique_ptr<DraftState> draft = {};  // null: it has had no drafts
  bool takes_drafts = true;                // where its search does
  int64_t reserved = 0;                    // bytes
  int64_t read = 0;                        // tokens of the step in hand
  int64_t accepted = 0;                    // drafts of the step in hand
  std::exception_ptr error = {};
};

void EngineOptions::check() const {
  QT_CHECK(memory_bytes > 0 && max_rows > 0 && max_length > 0 && page_tokens > 0,
           "serving: memory {}, rows {}, length {} and tokens a page {} must be positive",
           memory_bytes, max_rows, max_length, page_tokens);
  QT_CHECK(draft_tokens >= 0, "serving: {} draft tokens must be 0 or more", draft_tokens);
}

Engine::Engine(std::unique_ptr<ServedNetwork> network, const EngineOptions& options,
               std::unique_ptr<Drafter> drafter)
    : network_(std::move(network)),
      drafter_(std::move(drafter)),
      options_(options),
      signal_(options.signal ? options.signal : std::make_shared<WorkSignal>()),
      budget_{.limit = options.memory_bytes},
      inputs_(*network_, budget_) {
  options.check();
  publish();
}

Engine::~Engine() = default;

void Engine::check(const Job& job) const {
  using enum Refused::Reason;
  const int64_t vocab_size = network_->vocab_size();
  const bool decoder_only = network_->decoder_only();
  const int64_t inputs = std::ssize(job.inputs);
  QT_CHECK(inputs > 0, "serving: a job needs inputs");
  for (int32_t token : job.inputs)
    QT_CHECK(token >= 0 && token < vocab_size,
             "serving: token {} lies outside the vocabulary of {}", token, vocab_size);
  if (job.search == nullptr) {
    QT_CHECK(!decoder_only, "serving: a decoder-only network encodes nothing");
    return;
  }
  QT_CHECK(job.rows > 0 && job.max_length > 0, "serving: {} rows of {} tokens must be positive",
           job.rows, job.max_length);
  const int64_t length = job.max_length + (decoder_only ? inputs - 1 : 0);
  if (length > options_.max_length)
    throw Refused(kTooLarge, fmt::format("{} tokens exceed the longest sequence, {}", length,
                                         options_.max_length));
  if (job.rows > options_.max_rows)
    throw Refused(kTooLarge, fmt::format("{} sequences at a time exceed the largest batch, {}",
                                         job.rows, options_.max_rows));
  const int64_t bytes = network_->input_bytes(job.inputs) + row_bytes(job);
  if (bytes > options_.memory_bytes)
    throw Refused(kTooLarge,
                  fmt::format("the caches of this request take {} bytes, of {} that there are; ask "
                              "for fewer or shorter sequences",
                              bytes, options_.memory_bytes));
}

uint64_t Engine::submit(Job job) {
  check(job);
  const std::lock_guard lock(mutex_);
  if (closed_) throw Refused(Refused::Reason::kClosed, "the server is shutting down");
  if (std::ssize(waiting_) >= options_.max_waiting)
    throw Refused(Refused::Reason::kQueueFull,
                  fmt::format("{} requests are waiting already", waiting_.size()));
  const uint64_t id = next_id_++;
  waiting_.add({.id = id, .job = std::move(job), .since = Clock::now()});
  signal_->ring();
  return id;
}

void Engine::cancel(uint64_t id) {
  const std::lock_guard lock(mutex_);
  cancelled_.insert(id);
  signal_->ring();
}

void Engine::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  signal_->ring();
}

void Engine::abort() {
  const std::lock_guard lock(mutex_);
  closed_ = aborted_ = true;
  signal_->ring();
}

EngineState Engine::state() const {
  const std::lock_guard lock(mutex_);
  EngineState state = published_;
  state.waiting = std::ssize(waiting_);
  return state;
}

void Engine::publish() {
  counts_.running = std::ssize(running_);
  counts_.encoder_tokens = inputs_.tokens_read();
  counts_.shared_inputs = inputs_.shared();
  counts_.memory_limit = budget_.limit;
  counts_.memory_reserved = counts_.memory_used = budget_.reserved;
  if (drafter_ != nullptr) counts_.draft_memory = drafter_->cache_bytes();
  for (const auto& running : running_)
    counts_.memory_used += running->rows->bytes() - running->reserved;
  if (running_.empty()) counts_.rows = 0;
  const std::lock_guard lock(mutex_);
  published_ = counts_;
}

void Engine::run() {
  Engine* const alone = this;
  run_engines({&alone, 1});
}

void Engine::run_until_idle() {
  while (!broken() && has_work().value_or(false)) work();
  if (broken()) end_all();
}

void Engine::work() {
  try {
    drop_cancelled_and_late();
    start(admit());
    if (!running_.empty()) step();
  } catch (const std::bad_alloc&) {
    shed(std::current_exception());
  }
  publish();
}

void Engine::end_all() {
  abort();
  drop_cancelled_and_late();
  publish();
}

void run_engines(std::span<Engine* const> engines) {
  while (std::ranges::none_of(engines, &Engine::broken)) {
    bool worked = false, waits = false;
    for (Engine* engine : engines) {
      const std::optional<bool> has_work = engine->has_work();
      if (has_work.value_or(false)) engine->work();
      worked |= has_work.value_or(false);
      waits |= has_work.has_value();
    }
    if (!waits) return;
    if (!worked) engines[0]->signal_->wait();
  }
  for (Engine* engine : engines) engine->end_all();
}

/// Ends the job in the batch that holds most.
void Engine::finish_largest(const std::exception_ptr& error) {
  const auto held = [](const std::unique_ptr<Running>& running) {
    return running->job.answer_bytes + running->rows->bytes();
  };
  const auto largest =
      std::max_element(running_.begin(), running_.end(),
                       [&](const auto& a, const auto& b) { return held(a) < held(b); });
  finish(static_cast<size_t>(largest - running_.begin()), error);
}

/// Ends some job, so that its memory is there for the others.
void Engine::shed(const std::exception_ptr& error) {
  if (!running_.empty()) return finish_largest(error);
  std::unique_lock lock(mutex_);
  if (waiting_.empty()) return;
  WaitingJob next = waiting_.take_next(Clock::now());
  lock.unlock();
  leave(next.job, {.error = error});
}

std::optional<bool> Engine::has_work() const {
  const std::lock_guard lock(mutex_);
  const bool has_work = !running_.empty() || !waiting_.empty();
  if (!has_work && closed_) return std::nullopt;
  return has_work;
}

void Engine::drop_cancelled_and_late() {
  using enum Refused::Reason;
  const Clock::time_point now = Clock::now();
  std::set<uint64_t> cancelled;
  std::vector<WaitingJob> left;
  bool all = false;
  const auto late = [&](const Job& job) { return job.deadline && *job.deadline <= now; };
  {
    const std::lock_guard lock(mutex_);
    cancelled.swap(cancelled_);
    all = aborted_;
    left = waiting_.take_if([&](const WaitingJob& waiting) {
      return all || cancelled.contains(waiting.id) || late(waiting.job);
    });
  }
  const auto reason = [&](uint64_t id) {
    if (all) return refusal(kClosed, "the server is shutting down");
    if (cancelled.contains(id)) return refusal(kCancelled, "cancelled");
    return refusal(kDeadline, "the time allowed for this request is over");
  };
  for (WaitingJob& job : left) leave(job.job, {.error = reason(job.id)});
  for (size_t i = running_.size(); i-- > 0;)
    if (all || cancelled.contains(running_[i]->id) || late(running_[i]->job))
      finish(i, reason(running_[i]->id));
}

/// The jobs that fit beside those that run, in the order of their turn. One that does not fit yet
/// holds up those behind it, or it might never.
std::vector<WaitingJob> Engine::admit() {
  const Clock::time_point now = Clock::now();
  std::vector<WaitingJob> jobs;
  int64_t rows = 0, bytes = 0, tokens = 0;
  for (const auto& running : running_) rows += running->job.rows;
  const std::lock_guard lock(mutex_);
  jobs.reserve(std::min(waiting_.size(), static_cast<size_t>(options_.max_rows)));
  while (!waiting_.empty()) {
    const Job& next = waiting_.next(now);
    const int64_t length = std::ssize(next.inputs);
    int64_t more = 0;
    if (next.search != nullptr)
      more = row_bytes(next) + (inputs_.has(next.inputs) ? 0 : network_->input_bytes(next.inputs));
    const bool first = jobs.empty();
    if (rows + next.rows > options_.max_rows || !budget_.fits(bytes + more)) break;
    if (!first && tokens + length > options_.max_encoder_tokens) break;
    rows += next.rows;
    bytes += more;
    tokens += length;
    jobs.push_back(waiting_.take_next(now));
    waiting_.account(jobs.back().job.client, length);
  }
  return jobs;
}

/// Runs a pass of the network; returns what it failed with.
template <class Body>
std::exception_ptr Engine::compute(const Body& body) {
  const Clock::time_point began = Clock::now();
  std::exception_ptr error;
  try {
    if (options_.before_step) options_.before_step();
    body();
    failures_ = 0;
  } catch (...) {
    error = std::current_exception();
    if (!out_of_memory(error)) broken_ = ++failures_ >= kMostFailures;
  }
  counts_.seconds_computing += seconds_since(began);
  return error;
}

void Engine::start(std::vector<WaitingJob> jobs) {
  const auto decoded = std::stable_partition(
      jobs.begin(), jobs.end(), [](const WaitingJob& w) { return w.job.search == nullptr; });
  encode_only({jobs.begin(), decoded});
  decode({decoded, jobs.end()});
}

void Engine::decode(std::span<WaitingJob> begun) {
  if (begun.empty()) return;
  std::vector<std::unique_ptr<Running>> made;
  const std::exception_ptr error = compute([&] {
    std::vector<const std::vector<int32_t>*> tokens;
    for (const WaitingJob& waiting : begun) tokens.push_back(&waiting.job.inputs);
    const auto inputs = inputs_.get(tokens);
    for (size_t i = 0; i < begun.size(); ++i) {
      const Job& job = begun[i].job;
      made.push_back(std::make_unique<Running>(
          Running{.id = begun[i].id,
                  .job = {},
                  .input = inputs[i],
                  .rows = network_->rows(*inputs[i]->cache,
                                         {.rows = job.rows, .max_length = job.max_length})}));
    }
    running_.reserve(running_.size() + made.size());
  });
  if (out_of_memory(error) && begun.size() > 1) {
    made.clear();
    for (size_t i = 0; i < begun.size(); ++i) decode(begun.subspan(i, 1));
    return;
  }
  for (size_t i = 0; i < begun.size(); ++i) {
    if (error != nullptr) {
      leave(begun[i].job, {.error = error});
      continue;
    }
    made[i]->job = std::move(begun[i].job);
    running_.push_back(std::move(made[i]));
    promise(*running_.back());
  }
}

void Engine::encode_only(std::span<WaitingJob> jobs) {
  if (jobs.empty()) return;
  std::vector<std::vector<float>> encoded;
  const std::exception_ptr error = compute([&] {
    std::vector<const std::vector<int32_t>*> tokens;
    for (const WaitingJob& waiting : jobs) tokens.push_back(&waiting.job.inputs);
    encoded = inputs_.encode(tokens);
  });
  if (out_of_memory(error) && jobs.size() > 1) {
    for (size_t i = 0; i < jobs.size(); ++i) encode_only(jobs.subspan(i, 1));
    return;
  }
  for (size_t i = 0; i < jobs.size(); ++i)
    leave(jobs[i].job, error != nullptr ? Outcome{.error = error} : Outcome{.encoded = encoded[i]});
}

/// What the job may still take, from now on.
void Engine::promise(Running& running) {
  const int64_t bytes = running.rows->reserved_bytes();
  budget_.reserved += bytes - running.reserved;
  running.reserved = bytes;
}

void Engine::step() {
  std::vector<StepJob> jobs;
  std::vector<JobAnswer> answers;
  const std::exception_ptr error = compute([&] {
    give_drafts();
    for (const auto& running : running_) {
      const decoding::RequestDecoder& search = *running->job.search;
      jobs.push_back({.rows = running->rows.get(),
                      .steps = search.rows(),
                      .sampling_request = search.sampling_request()});
    }
    answers = network_->step(jobs);
  });
  if (out_of_memory(error)) return finish_largest(error);  // the next step is this one again
  if (error != nullptr) {
    while (!running_.empty()) finish(running_.size() - 1, error);
    return;
  }
  ++counts_.steps;
  counts_.rows = 0;
  for (const StepJob& job : jobs) counts_.rows += std::ssize(job.steps);
  counts_.row_steps += counts_.rows;
  for (const JobAnswer& answer : answers)
    counts_.whole_rows += std::ssize(answer.logits) / network_->vocab_size();
  advance(answers);
}

/// To the searches that take them, as far as a step has rows that no job needs. Where there is no memory for them,
/// jobs go on without.
void Engine::give_drafts() {
  if (drafter_ == nullptr) return;
  int64_t free = options_.max_rows;
  for (const auto& running : running_) {
    if (running->job.search->drafted()) running->job.search->give_drafts({});
    free -= std::ssize(running->job.search->rows());
  }
  std::vector<Running*> takers;
  std::vector<int64_t> most;
  for (const auto& running : running_) {
    const auto sequence = running->job.search->drafted();
    const int64_t drafts = sequence && running->takes_drafts
                               ? std::min({options_.draft_tokens, sequence->room, free})
                               : 0;
    if (drafts <= 0) continue;
    free -= drafts;
    takers.push_back(running.get());
    most.push_back(drafts);
  }
  try {
    start_drafts(takers);
    std::vector<DraftRequest> requests;
    std::vector<Running*> drafted;
    for (size_t i = 0; i < takers.size(); ++i) {
      if (takers[i]->draft == nullptr) continue;
      requests.push_back({.state = takers[i]->draft.get(),
                          .tokens = takers[i]->job.search->drafted()->tokens,
                          .most = most[i]});
      drafted.push_back(takers[i]);
    }
    drafter_->draft(requests);
    for (size_t i = 0; i < requests.size(); ++i)
      drafted[i]->job.search->give_drafts(requests[i].drafts);
  } catch (...) {
    if (!out_of_memory(std::current_exception())) throw;
    for (Running* running : takers) running->takes_drafts = false, running->draft = nullptr;
  }
}

/// Those that have none yet.
void Engine::start_drafts(std::span<Running* const> takers) {
  std::vector<DraftJob> jobs;
  std::vector<Running*> starting;
  for (Running* running : takers) {
    if (running->draft != nullptr) continue;
    jobs.push_back({.inputs = &running->job.inputs, .max_length = running->job.max_length});
    starting.push_back(running);
  }
  auto states = drafter_->start(jobs);
  for (size_t i = 0; i < starting.size(); ++i) {
    starting[i]->draft = std::move(states[i]);
    starting[i]->takes_drafts = starting[i]->draft != nullptr;
  }
}

/// Lets each search read what it asked for; those that are over leave.
void Engine::advance(std::span<const JobAnswer> answers) {
  const int64_t jobs = std::ssize(running_);
#pragma omp parallel for schedule(dynamic, 1) if (jobs > 1)
  for (int64_t i = 0; i < jobs; ++i) {
    Running& running = *running_[static_cast<size_t>(i)];
    const JobAnswer& got = answers[static_cast<size_t>(i)];
    decoding::RequestDecoder& search = *running.job.search;
    running.read = std::ssize(search.rows());
    const auto written = [&] {
      return running.draft == nullptr ? 0 : std::ssize(search.drafted()->tokens);
    };
    const int64_t before = written();
    running.accepted = 0;
    try {
      if (got.logits.empty())
        search.advance(got.top_k);
      else
        search.advance(got.logits);
      running.accepted = std::max<int64_t>(0, written() - before - 1);
      if (running.job.on_step) running.job.on_step(search);
    } catch (...) {
      running.error = std::current_exception();
    }
  }
  {
    const std::lock_guard lock(mutex_);
    // Wrong guesses took rows that nobody needed.
    for (const auto& running : running_)
      waiting_.account(running->job.client,
                       running->draft == nullptr ? running->read : 1 + running->accepted);
  }
  for (const auto& running : running_) {
    if (running->draft != nullptr) counts_.draft_tokens += running->read - 1;
    counts_.accepted_drafts += running->accepted;
  }
  for (size_t i = running_.size(); i-- > 0;) {
    Running& running = *running_[i];
    promise(running);
    if (running.error != nullptr || running.job.search->rows().empty()) finish(i, running.error);
  }
}

/// Frees what a job in the batch holds, then says so.
void Engine::finish(size_t index, std::exception_ptr error) {
  Job job = std::move(running_[index]->job);
  budget_.reserved -= running_[index]->reserved;
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  leave(job, {.error = std::move(error), .search = job.search.get()});
}

void Engine::leave(Job& job, const Outcome& outcome) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.leave(job.client);
  }
  publish();
  if (!job.done) return;
  try {
    job.done(outcome);
  } catch (...) {  // no memory for what it came to, say
    job.done({.error = std::current_exception()});
  }
}

}  // namespace quintet::serving
