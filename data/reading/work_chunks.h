#pragma once
// Work chunks: each is a fixed number of neighbouring places of a task's order, read and
// preprocessed by itself, so that chunks can be made by any thread or process, ahead of time,
// and the stream of their examples is the same. Preprocessors that join examples join those of one
// chunk.
//
//   ChunkThreads threads(4);
//   StreamPtr stream = chunk_stream(order, preprocess, {.runner = &threads});

#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "data/reading/read_order.h"
#include "runtime/base/thread_pool.h"

namespace quintet::data {

/// Examples of a chunk; with an error, those before it.
struct WorkChunk {
  std::vector<Example> examples;
  std::exception_ptr error;
};

/// Makes chunks somewhere else than in the caller.
class ChunkRunner {
 public:
  virtual ~ChunkRunner() = default;
  /// A number for a stream of chunks; streams opened in the same order get the same numbers.
  virtual int64_t new_stream() = 0;
  /// Chunk `chunk` of a stream, which `make` makes from examples of `provenance`. Called in the order in
  /// which chunks are needed.
  virtual std::future<WorkChunk> run(int64_t stream, int64_t chunk, const Provenance& provenance,
                                     std::function<WorkChunk()> make) = 0;
  /// Chunks to ask for before they are needed, over all streams.
  virtual int64_t prefetch_depth() const = 0;
  /// The caller waits for a chunk now (none: for nothing any more); to name who holds it up.
  virtual void depends_on(int64_t stream, std::optional<int64_t> chunk) {
    static_cast<void>(stream), static_cast<void>(chunk);
  }
  /// Another process that the caller has been waiting for longer than a moment; empty: none.
  virtual std::string held_up_by() { return ""; }
  /// Nothing is needed any more: who waits for a chunk gets an error.
  virtual void cancel() {}
};

/// Threads of this process.
class ChunkThreads final : public ChunkRunner {
 public:
  explicit ChunkThreads(int threads);
  int64_t new_stream() override { return streams_++; }
  std::future<WorkChunk> run(int64_t stream, int64_t chunk, const Provenance& provenance,
                             std::function<WorkChunk()> make) override;
  int64_t prefetch_depth() const override;

 private:
  int64_t streams_ = 0;
  ThreadPool pool_;  // drops at its end what has not been begun
};
/// The number of threads for a request (0: a quarter of the machine's, at least 1, at most 16).
int reader_threads(int requested);

constexpr int64_t kChunkExamples = 128;  // as many examples as t5's span corruption joins

struct ChunkOptions {
  int64_t examples = kChunkExamples;
  std::shared_ptr<ChunkRunner> runner =
      {};            // none: each chunk is made when its first example is asked for
  double share = 1;  // of the prefetch depth
};
/// What preprocessing a task does to a stream; called once a chunk, from any thread.
using Preprocess = std::function<StreamPtr(StreamPtr)>;

/// All chunks of an order, one after the other. Its position is two integers: the chunk, and the
/// examples taken from it. Throws what `preprocess` throws for its arguments.
StreamPtr chunk_stream(std::shared_ptr<const ReadOrder> order, Preprocess preprocess,
                       const ChunkOptions& options);

}  // namespace quintet::data
