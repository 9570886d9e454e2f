// A network on the current device. Inputs and rows share one pool of pages (gpu_pages.h). A step
// is recorded once (a CUDA graph) and repeated over max_rows rows, of which those that rest attend
// to nothing: products have the same shape whatever the batch, so what a row gets does not depend
// on who else is there as far as the library's products treat all rows alike (those of the emulator
// and of our kernels do). For the same reason inputs are encoded one by one, behind them padding up
// to a multiple of 64 tokens, which is masked: products are then measured for few lengths.
// Logits, [rows, vocab] in float32, stay there: the recording ends with the largest elements of each
// row and the tokens that were asked for, which alone are copied into pinned memory of the host. Jobs
// whose questions want more, or that ask none, get their rows.

#include <algorithm>
#include <array>

#include "kernels/gpu/gpu_kernels.h"
#include "models/decoding/encoding.h"
#include "models/decoding/gpu/device_arrays.h"
#include "models/decoding/gpu/gpu_inputs.h"
#include "models/decoding/gpu/gpu_layers.h"
#include "models/decoding/gpu/gpu_products.h"
#include "models/decoding/gpu/gpu_sequences.h"
#include "models/decoding/gpu/repeated_work.h"
#include "models/serving/gpu_pages.h"
#include "models/serving/gpu_step.h"
#include "models/serving/paged_rows.h"
#include "runtime/execution/tape.h"

namespace quintet::serving {
namespace {

using decoding::at;
using decoding::GpuWeights;

constexpr auto kTogether = static_cast<int32_t>(kMostGroupRows);  // rows that read an input at once

struct GpuInput final : InputCache {
  std::vector<GpuPages::Page> pages;
  // Of an encoder's input: all tokens; of a prefix: all but the last, which rows read again.
  std::vector<int32_t> slots;
  Tensor device_slots;
};

struct GpuRows final : PagedRows<GpuPages> {
  GpuRows(GpuPages& pages, const RowLimits& limits, const GpuInput& read, bool prefix)
      : PagedRows(pages, limits, prefix ? read.slots : std::span<const int32_t>()), input(read) {}
  const GpuInput& input;
};

class GpuNetwork final : public ServedNetwork {
 public:
  GpuNetwork(const BaseModel& model, const EngineOptions& options,
             const decoding::InferenceWeights& weights)
      : weights_(model, weights),
        max_rows_(options.max_rows),
        bidirectional_(options.bidirectional_prefix),
        has_drafts_(options.draft_tokens > 0),
        pages_(weights_, options.page_tokens, options.memory_bytes, options.cache_type),
        row_("rows", max_rows_),
        memory_(max_rows_, options.max_length),
        answers_(max_rows_, weights_.spec.vocab_size),
        logits_(Spec{{row_, {axis::kVocab, weights_.spec.vocab_size}}, DType::f32}),
        host_logits_(Device::current().pinned(logits_.bytes())) {
    // Memory, plans and the recording are there before the first job is.
    for (int i = 0; i < 2; ++i) step({});
  }

  int64_t vocab_size() const override { return weights_.spec.vocab_size; }
  bool decoder_only() const override { return weights_.spec.decoder_only(); }
  int64_t input_bytes(const Tokens& inputs) const override {
    return bytes_for(pages_, std::ssize(inputs));
  }
  int64_t row_bytes(const RowLimits& limits) const override {
    return limits.rows * bytes_for(pages_, limits.max_length);
  }

  std::vector<std::unique_ptr<InputCache>> read(std::span<const Tokens* const> inputs) override;
  std::vector<std::vector<float>> encode(std::span<const Tokens* const> inputs) override {
    return encode_each(weights_, inputs);
  }

  std::unique_ptr<RowCaches> rows(const InputCache& input, const RowLimits& limits) override {
    return std::make_unique<GpuRows>(pages_, limits, static_cast<const GpuInput&>(input),
                                     decoder_only());
  }
  std::vector<JobAnswer> step(std::span<const StepJob> jobs) override;

 private:
  void store(size_t layer, const GpuInput& input, const Tensor& keys, const Tensor& values) const;
  void store_rows(size_t layer, const void* keys, const void* values, int64_t stride);
  void queue_step();
  std::span<const RowDraw> draws_of(const StepJob& job) const;
  std::vector<JobAnswer> answers(std::span<const StepJob> jobs) const;

  const GpuWeights weights_;
  const int64_t max_rows_;
  const bool bidirectional_, has_drafts_;
  GpuPages pages_;
  const Axis row_;
  StepMemory memory_;
  const AnswerMemory answers_;
  const Tensor logits_;  // [max_rows, vocab]
  const Buffer host_logits_;
  decoding::RepeatedWork step_;
};

/// Where drafts are read, all rows' keys and values are there before any row attends.
void GpuNetwork::store_rows(size_t layer, const void* keys, const void* values, int64_t stride) {
  Device& device = Device::current();
  device.kernels().store_paged({.dtype = weights_.dtype(),
                                .pool = pages_.pool(layer),
                                .tokens = max_rows_,
                                .heads = weights_.layer().kv_heads(),
                                .head_dim = weights_.layer().head_dim,
                                .keys = keys,
                                .values = values,
                                .stride = stride,
                                .slots = memory_.device_slots()},
                               device.stream());
}

/// To the input's slots: keys and values [1, at least as many, kv_width].
void GpuNetwork::store(size_t layer, const GpuInput& input, const Tensor& keys,
                       const Tensor& values) const {
  Device& device = Device::current();
  device.kernels().store_paged({.dtype = weights_.dtype(),
                                .pool = pages_.pool(layer),
                                .tokens = std::ssize(input.slots),
                                .heads = weights_.layer().kv_heads(),
                                .head_dim = weights_.layer().head_dim,
                                .keys = at(keys, 0),
                                .values = at(values, 0),
                                .stride = weights_.layer().kv_width(),
                                .slots = decoding::ints(input.device_slots)},
                               device.stream());
}

std::vector<std::unique_ptr<InputCache>> GpuNetwork::read(std::span<const Tokens* const> inputs) {
  const Tape::Recording paused(nullptr);
  std::vector<std::unique_ptr<InputCache>> made;
  for (const Tokens* tokens : inputs) {
    auto input = std::make_unique<GpuInput>();
    const int64_t n = std::ssize(*tokens), cached = decoder_only() ? n - 1 : n;
    for (int64_t t = 0; t < n; ++t) {
      if (t % pages_.tokens() == 0) input->pages.push_back(pages_.take());
      if (t < cached) input->slots.push_back(pages_.slot(input->pages.back(), t));
    }
    if (cached > 0) {
      input->device_slots = decoding::device_array(cached);
      decoding::set_values<int32_t>(input->device_slots, input->slots);
    }
    if (cached > 0 && decoder_only()) {
      run_prefix(weights_, decoding::padded_for_gpu(*tokens), std::array{static_cast<int32_t>(n)},
                 bidirectional_, [&](size_t layer, const Tensor& keys, const Tensor& values) {
                   store(layer, *input, keys, values);
                 });
    } else if (cached > 0) {
      const Tensor x = run_encoder(weights_, *tokens);
      for (size_t i = 0; i < weights_.decoder.layers.size(); ++i) {
        const auto& weights = weights_.decoder.layers[i].cross->key_value.parts;
        store(i, *input, ops::matmul(x, weights[0]), ops::matmul(x, weights[1]));
      }
    }
    made.push_back(std::move(input));
  }
  Device::current().synchronize();  // what went wrong is theirs
  return made;
}

/// From the step's inputs on the device to its answers.
void GpuNetwork::queue_step() {
  Device& device = Device::current();
  const GpuKernels& kernels = device.kernels();
  const Stream stream = device.stream();
  const int64_t joined = weights_.joined_kv();
  const Tensor attended(Spec{{row_, {axis::kJoinedKv, joined}}, weights_.dtype()});
  device.fill(at(attended, 0), 0, attended.bytes());  // of rows that rest, too
  const decoding::StepAttention attention{
      .self =
          [&](size_t i, const DecodeRows& rows, const void* key, const void* value,
              const Tensor& bias) {
            if (has_drafts_) store_rows(i, key, value, rows.query_stride);
            kernels.decode_paged({.rows = rows,
                                  .pool = pages_.pool(i),
                                  .groups = memory_.device_self(),
                                  .key = has_drafts_ ? nullptr : key,
                                  .value = has_drafts_ ? nullptr : value,
                                  .key_stride = rows.query_stride,
                                  .bias = bias.absent() ? nullptr : bias.local().data<float>(),
                                  .biases = bias.absent() ? 0 : bias.size(1)},
                                 stream);
          },
      .cross =
          [&](size_t i, DecodeRows rows) {
            rows.decodes = kTogether;
            kernels.decode_paged(
                {.rows = rows, .pool = pages_.pool(i), .groups = memory_.device_cross()}, stream);
          },
      .positions = memory_.device_positions()};
  const Tensor x =
      decoding::queue_layers(weights_, weights_.embedding.rows(memory_.device_tokens(), {row_}),
                             {.items = max_rows_}, attended, attention);
  decoding::Products(max_rows_, weights_).project(x, logits_);
  answers_.queue(logits_.local().data<float>(), vocab_size(), memory_.device_draws());
}

std::vector<JobAnswer> GpuNetwork::step(std::span<const StepJob> jobs) {
  const Tape::Recording paused(nullptr);
  memory_.clear();  // the step before was waited for: nothing reads it any more
  int32_t row = 0;
  size_t group = 0, draw = 0;
  for (const StepJob& job : jobs) {
    auto& caches = static_cast<GpuRows&>(*job.rows);
    caches.follow(job.steps);
    const auto count = static_cast<int32_t>(job.steps.size());
    QT_ASSERT(row + count <= max_rows_);
    const GpuInput& input = caches.input;
    for (int32_t first = 0; !decoder_only() && first < count; first += kTogether)
      memory_.cross()[group++] = {.slots = decoding::ints(input.device_slots),
                                  .length = static_cast<int32_t>(input.slots.size()),
                                  .row = row + first,
                                  .rows = std::min(kTogether, count - first)};
    for (RowDraw wanted : draws_of(job)) {
      wanted.row += row;
      memory_.draws()[draw++] = wanted;
    }
    for (const decoding::RowStep& step : job.steps) {
      const auto past = caches.past(step);
      memory_.slots()[static_cast<size_t>(row)] = past.back();
      memory_.tokens()[static_cast<size_t>(row)] = step.token;
      memory_.positions()[static_cast<size_t>(row)] = static_cast<int32_t>(past.size()) - 1;
      memory_.self()[static_cast<size_t>(row)] = {.slots = memory_.add_slots(past),
                                                  .length = static_cast<int32_t>(past.size()),
                                                  .row = row,
                                                  .rows = 1};
      ++row;
    }
  }
  memory_.send();
  step_.run(weights_.ranks, [this] { queue_step(); });
  Device::current().synchronize();
  return answers(jobs);
}

std::span<const RowDraw> GpuNetwork::draws_of(const StepJob& job) const {
  if (!answers_.holds(job.sampling_request)) return {};
  return job.sampling_request->draws;
}

/// Of the step that has just ended.
std::vector<JobAnswer> GpuNetwork::answers(std::span<const StepJob> jobs) const {
  std::vector<JobAnswer> all;
  int64_t row = 0, draw = 0;
  for (const StepJob& job : jobs) {
    const int64_t rows = std::ssize(job.steps), floats = rows * vocab_size();
    JobAnswer& one = all.emplace_back();
    if (answers_.holds(job.sampling_request)) {
      one.top_k = answers_.from(row, draw);
    } else {
      auto* const host = reinterpret_cast<float*>(host_logits_.get()) + row * vocab_size();
      Device::current().copy_out(host, at(logits_, row * vocab_size()), 4 * floats);
      one.logits = {host, static_cast<size_t>(floats)};
    }
    draw += std::ssize(draws_of(job));
    row += rows;
  }
  return all;
}

}  // namespace

std::unique_ptr<ServedNetwork> gpu_network(const BaseModel& model, const EngineOptions& options,
                                           const decoding::InferenceWeights& weights) {
  options.check();
  return std::make_unique<GpuNetwork>(model, options, weights);
}

}  // namespace quintet::serving
