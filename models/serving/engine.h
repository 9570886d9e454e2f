#pragma once
// In-flight batching: jobs join and leave between the steps of one batch. New jobs' inputs are
// encoded; then each step takes one token of every row of every job. A job's answer does not
// depend, bit for bit, on what else is in the batch (models/serving/gpu_network.cpp: how far on
// a GPU). Each job's search runs on the host, between the steps; what it reads of the logits, a GPU
// finds (models/decoding/search/top_k_result.h), except for requests whose rules change logits (penalties,
// forced prefixes): their rows come to the host. Rows of a step that no job needs may read draft tokens.
//
//   const EngineOptions options{.memory_bytes = 1 << 30};
//   Engine engine(cpu_network(network, options), options);  // or gpu_network
//   std::thread clients([&] { engine.submit(std::move(job)); ...; engine.close(); });
//   engine.run();                                  // on the thread whose OpenMP team computes
//
// Memory is reserved to a job for the longest it may become before it starts, so that what has
// started can always be finished; pages are taken as tokens are written. Should the machine's
// memory end all the same, the job that holds most ends with bad_alloc and the others go on.

#include <atomic>
#include <mutex>
#include <set>

#include "models/serving/drafter.h"
#include "models/serving/encoded_inputs.h"
#include "models/serving/fair_queue.h"

namespace quintet::serving {

struct EngineState {
  int64_t waiting = 0, running = 0, rows = 0;  // jobs, jobs, rows of the last step
  int64_t memory_limit = 0, memory_reserved = 0, memory_used = 0;  // bytes
  int64_t draft_memory = 0;  // reserved for an assistant's caches, beside these
  int64_t steps = 0, row_steps = 0, encoder_tokens = 0;
  int64_t whole_rows = 0;                         // of row_steps, those whose logits the host read
  int64_t shared_inputs = 0;                      // jobs that found their inputs encoded
  int64_t draft_tokens = 0, accepted_drafts = 0;  // read, and those that their searches took
  double seconds_computing = 0;
};

class Engine {
 public:
  /// The network was made with the same options. `drafter`: of the draft tokens that options allow; null: none. Throws
  /// usage errors.
  Engine(std::unique_ptr<ServedNetwork> network, const EngineOptions& options,
         std::unique_ptr<Drafter> drafter = nullptr);
  ~Engine();

  // From any thread.
  /// Queues a job and returns its number. Throws Refused (queue full, too large for the memory or
  /// max_rows, closed) and usage errors; then `done` is not called.
  uint64_t submit(Job job);
  /// Ends a job between two steps: `done` gets Refused. Jobs that are over are ignored.
  void cancel(uint64_t id);
  /// No more jobs; run() returns when those that are there are over.
  void close();
  /// Ends all jobs and close().
  void abort();
  EngineState state() const;
  /// Several passes in a row have failed: the device is taken to be lost, and run() has returned.
  bool broken() const { return broken_; }

  void run();
  /// As run(), until no job is left; more may come afterwards.
  void run_until_idle();

 private:
  friend void run_engines(std::span<Engine* const> engines);
  struct Running;
  void check(const Job& job) const;
  int64_t row_bytes(const Job& job) const {
    return network_->row_bytes({.rows = job.rows, .max_length = job.max_length});
  }
  /// Has jobs to work on; nothing: it never will again.
  std::optional<bool> has_work() const;
  /// One encoder pass and one step, of what there is.
  void work();
  void end_all();
  void drop_cancelled_and_late();
  std::vector<WaitingJob> admit();
  void start(std::vector<WaitingJob> jobs);
  void decode(std::span<WaitingJob> jobs);
  void encode_only(std::span<WaitingJob> jobs);
  void promise(Running& running);
  void step();
  void give_drafts();
  void start_drafts(std::span<Running* const> takers);
  void advance(std::span<const JobAnswer> answers);
  void finish(size_t index, std::exception_ptr error);
  void finish_largest(const std::exception_ptr& error);
  void shed(const std::exception_ptr& error);
  void leave(Job& job, const Outcome& outcome);
  void publish();
  template <class Body>
  std::exception_ptr compute(const Body& body);

  const std::unique_ptr<ServedNetwork> network_;
  const std::unique_ptr<Drafter> drafter_;
  const EngineOptions options_;
  const std::shared_ptr<WorkSignal> signal_;
  MemoryBudget budget_;
  EncodedInputs inputs_;
  std::vector<std::unique_ptr<Running>> running_;
  EngineState counts_;  // the engine's thread's own
  int failures_ = 0;    // in a row

  mutable std::mutex mutex_;
  FairQueue waiting_;
  std::set<uint64_t> cancelled_;
  EngineState published_;
  uint64_t next_id_ = 1;
  bool closed_ = false, aborted_ = false;
  std::atomic<bool> broken_ = false;
};

/// Runs engines with the same signal on one thread, which takes a step of each in turn: they share its device, its team
/// and its memory. Returns when all are closed and done, or one is broken, which ends the jobs of all.
void run_engines(std::span<Engine* const> engines);

}  // namespace quintet::serving
