#include "models/decoding/gpu/gpu_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/gpu/gpu_kernels.h"
#include "models/decoding/gpu/device_arrays.h"
#include "models/decoding/gpu/gpu_beams.h"
#include "models/decoding/gpu/gpu_inputs.h"
#include "models/decoding/gpu/gpu_layers.h"
#include "models/decoding/gpu/gpu_products.h"
#include "models/decoding/gpu/gpu_samples.h"
#include "models/decoding/gpu/gpu_sequences.h"
#include "models/decoding/gpu/repeated_work.h"
#include "models/features.h"

namespace quintet::decoding {
namespace {

uint16_t* sources(const Tensor& tensor) { return static_cast<uint16_t*>(tensor.local().pointer); }

/// Keys and values of a layer; in bytes with a scale a vector.
struct Cached {
  Tensor keys, values, key_scales, value_scales;

  Cached(std::vector<Axis> vectors, const Axis& elements, DType dtype, CacheType type) {
    const bool in_bytes = type != CacheType::native;
    const Spec scales{vectors, DType::f32};
    vectors.back().size *= elements.size;
    const Spec numbers{vectors, in_bytes ? DType::u8 : dtype};
    keys = Tensor(numbers), values = Tensor(numbers);
    if (in_bytes) key_scales = Tensor(scales), value_scales = Tensor(scales);
  }
  DecodeCache at_strides(CacheType type, int64_t sequence, int64_t head, int64_t token,
                         int64_t max_length) const {
    DecodeCache cache{at(keys, 0), at(values, 0), sequence, head, token, max_length, type};
    if (type != CacheType::native) {
      cache.key_scales = static_cast<float*>(at(key_scales, 0));
      cache.value_scales = static_cast<float*>(at(value_scales, 0));
    }
    return cache;
  }
};

Tensor on_device(std::span<const int32_t> slots) {
  const Tensor there = device_array(std::ssize(slots));
  set_values<int32_t>(there, slots);
  return there;
}

/// Keys and values [tokens, kv_width] to slots [tokens] of a cache in 8 bits; -1: of none.
void store_in_bytes(const GpuWeights& weights, const DecodeCache& cache, const Tensor& keys,
                    const Tensor& values, const Tensor& slots) {
  Device::current().kernels().store_paged({.dtype = weights.dtype(),
                                           .pool = cache,
                                           .tokens = slots.size(0),
                                           .heads = weights.layer().kv_heads(),
                                           .head_dim = weights.layer().head_dim,
                                           .keys = at(keys, 0),
                                           .values = at(values, 0),
                                           .stride = weights.layer().kv_width(),
                                           .slots = ints(slots)},
                                          Device::current().stream());
}

}  // namespace

constexpr int64_t kStepsBetweenLooks = 8;  // looking waits, steps after the last are for nothing
enum InputRow { kTokens, kPositions, kParents, kInputRows };

struct GpuDecoder::State {
  CacheOptions options;
  int64_t batch, length, rows;
  const LayerConfig& sizes;
  const bool by_head;
  Tensor lengths;  // int32 [batch] tokens of each encoded item
  // By layer: [batch, length, kv_width], and [rows, kv heads, max_length, head_dim]; [rows, max_length, kv_width] where
  // whole prefixes are copied in.
  std::vector<Cached> crosses, selves;
  Axis row;
  Tensor step_inputs;            // int32 [3, rows]: InputRow
  Tensor sources, next_sources;  // uint16 [rows, max_length]
  Tensor logits;                 // float32 [rows, vocab]
  int64_t top;                   // largest elements of each row that a step sends
  Tensor best;                   // 4 bytes [2 top + 1, rows]: TopRows' values, indices and log_sums
  // The host's side of step_inputs, best and, once they were asked for, logits.
  Buffer host_inputs, host_best, host_logits;
  RepeatedWork step;
  std::unique_ptr<GpuBeams> beams;  // of the last search that ran here
  RepeatedWork beam_step;
  std::unique_ptr<GpuSamples> samples;  // likewise
  RepeatedWork sample_step;

  /// `inputs`: tokens of the encoder, 0 without one.
  State(const GpuWeights& weights, int64_t items, int64_t inputs, const CacheOptions& cache)
      : options(cache),
        batch(items),
        length(inputs),
        rows(items * cache.num_decodes),
        sizes(weights.layer()),
        by_head(weights.spec.decoder.cross_attention),
        row("rows", rows),
        top(std::min<int64_t>(kMostTop, 4 * cache.num_decodes + 4)) {
    const DType dtype = weights.dtype();
    const Axis heads{axis::kHeads, sizes.kv_heads()}, elements{axis::kKv, sizes.head_dim};
    lengths = Tensor(Spec{{{axis::kBatch, batch}}, DType::i32});
    for (size_t i = 0; i < weights.decoder.layers.size(); ++i) {
      if (by_head)
        crosses.emplace_back(
            std::vector<Axis>{{axis::kBatch, batch}, {axis::kLength, length}, heads}, elements,
            dtype, options.type);
      selves.emplace_back(std::vector<Axis>{row, heads, {axis::kLength, options.max_length}},
                          elements, dtype, options.type);
    }
    step_inputs = Tensor(Spec{{{"input", kInputRows}, row}, DType::i32});
    best = Tensor(Spec{{{"result", 2 * top + 1}, row}, DType::f32});
    host_inputs = Device::current().pinned(step_inputs.bytes());
    host_best = Device::current().pinned(best.bytes());
    const Spec slots{{row, {"bytes", options.max_length * 2}}, DType::u8};
    sources = Tensor(slots);
    next_sources = Tensor(slots);
    logits = Tensor(Spec{{row, {axis::kVocab, weights.spec.vocab_size}}, DType::f32});
  }
  // Heads that share keys and values find them at one place.
  DecodeCache self(size_t layer) const {
    const int64_t apart = by_head ? options.max_length * sizes.head_dim : sizes.head_dim;
    return selves[layer].at_strides(
        options.type, options.max_length * sizes.kv_width(), sizes.kv_head_of(1) * apart,
        by_head ? sizes.head_dim : sizes.kv_width(), options.max_length);
  }
  DecodeCache cross(size_t layer) const {
    return crosses[layer].at_strides(options.type, length * sizes.kv_width(),
                                     sizes.kv_head_of(1) * sizes.head_dim, sizes.kv_width(),
                                     length);
  }
  const int32_t* input(InputRow which) const { return ints(step_inputs) + which * rows; }
  int32_t* host_input(InputRow which) const {
    return reinterpret_cast<int32_t*>(host_inputs.get()) + which * rows;
  }
  /// The parts of `best`, there or in the host's copy.
  TopRows parts_of(void* memory) const {
    auto* const first = static_cast<float*>(memory);
    return {.rows = rows,
            .vocab = logits.size(1),
            .top = top,
            .values = first,
            .indices = reinterpret_cast<int32_t*>(first + rows * top),
            .log_sums = first + 2 * rows * top};
  }
  bool fits(int64_t items, int64_t inputs, const CacheOptions& cache) const {
    return batch == items && length == inputs && options.num_decodes == cache.num_decodes &&
           options.max_length == cache.max_length && options.type == cache.type;
  }
};

GpuDecoder::GpuDecoder(const BaseModel& model, const InferenceWeights& weights)
    : weights_(std::make_unique<GpuWeights>(model, weights)) {
  QT_ASSERT(!Device::current().is_cpu());
}

GpuDecoder::~GpuDecoder() = default;

void GpuDecoder::begin(std::span<const int32_t> tokens, int64_t batch, int64_t length,
                       const CacheOptions& options) {
  QT_CHECK(batch > 0 && length > 0 && options.num_decodes > 0 && options.max_length > 0,
           "generation: encoder inputs [batch={}, length={}] and outputs [decodes={}, length={}] "
           "must not be empty",
           batch, length, options.num_decodes, options.max_length);
  QT_ASSERT(static_cast<int64_t>(tokens.size()) == batch * length);
  QT_CHECK(!weights_->spec.decoder_only(),
           "generation: a decoder-only network has no encoder inputs");
  const Alone alone;
  start(batch, length, options);
  State& s = *state_;
  HostArray inputs(DType::i32, {batch, length}), segments = inputs;
  std::copy(tokens.begin(), tokens.end(), inputs.as<int32_t>().begin());
  std::transform(tokens.begin(), tokens.end(), segments.as<int32_t>().begin(),
                 [](int32_t token) { return token > 0 ? 1 : 0; });
  Tensor encoded = encode(*weights_, inputs, segments);  // [batch, length, embed]
  const auto [order, lengths] = without_padding(tokens, batch, length);
  if (!order.empty()) {
    HostArray places(DType::i32, {batch, length});
    std::copy(order.begin(), order.end(), places.as<int32_t>().begin());
    encoded =
        ops::embed(Tensor::from_host(places, {axis::kBatch, axis::kLength}),
                   with_axes(encoded, {{axis::kVocab, batch * length}, encoded.spec().axes[2]}));
  }
  set_values<int32_t>(s.lengths, lengths);
  Device& device = Device::current();
  Tensor slots;
  if (options.type != CacheType::native) {
    std::vector<int32_t> all(static_cast<size_t>(batch * length));
    std::iota(all.begin(), all.end(), 0);
    slots = on_device(all);
  }
  for (size_t i = 0; i < weights_->decoder.layers.size(); ++i) {
    const auto& weights = weights_->decoder.layers[i].cross->key_value.parts;
    if (slots) {
      store_in_bytes(*weights_, s.cross(i), ops::matmul(encoded, weights[0]),
                     ops::matmul(encoded, weights[1]), slots);
      continue;
    }
    for (const auto& [weight, to] :
         {std::pair(weights[0], s.crosses[i].keys), {weights[1], s.crosses[i].values}})
      device.copy(to.local().pointer, ops::matmul(encoded, weight).local().pointer, to.bytes());
  }
}

void GpuDecoder::begin_prefix(std::span<const int32_t> tokens, int64_t batch, int64_t length,
                              std::span<const int32_t> prefix, bool bidirectional,
                              const CacheOptions& options) {
  QT_CHECK(weights_->spec.decoder_only(), "generation: a prefix needs a decoder-only network");
  QT_ASSERT(static_cast<int64_t>(tokens.size()) == batch * length && std::ssize(prefix) == batch);
  const int32_t longest = *std::max_element(prefix.begin(), prefix.end());
  QT_CHECK(longest <= options.max_length,
           "generation: a prefix of {} tokens exceeds the maximum length {}", longest,
           options.max_length);
  const Alone alone;
  start(batch, 0, options);
  if (longest == 0) return;
  HostArray begun(DType::i32, {batch, longest});
  for (int64_t i = 0; i < batch; ++i)
    std::copy_n(tokens.begin() + i * length, longest, begun.as<int32_t>().begin() + i * longest);
  // To the slot of each item's first decode, which all of its rows read.
  const State& s = *state_;
  const int64_t joined = weights_->layer().kv_width();
  std::vector<int32_t> all;
  for (int64_t i = 0; i < batch; ++i)
    for (int32_t t = 0; t < longest; ++t)
      all.push_back(t < prefix[static_cast<size_t>(i)]
                        ? static_cast<int32_t>(i * options.num_decodes * options.max_length) + t
                        : -1);
  const Tensor slots = options.type == CacheType::native ? Tensor() : on_device(all);
  run_prefix(*weights_, begun, prefix, bidirectional,
             [&](size_t layer, const Tensor& keys, const Tensor& values) {
               if (slots) return store_in_bytes(*weights_, s.self(layer), keys, values, slots);
               for (const auto& [from, to] :
                    {std::pair(keys, s.selves[layer].keys), {values, s.selves[layer].values}})
                 for (int64_t i = 0; i < batch; ++i)
                   Device::current().copy(
                       at(to, i * options.num_decodes * options.max_length * joined),
                       at(from, i * longest * joined),
                       prefix[static_cast<size_t>(i)] * joined * size_of(weights_->dtype()));
             });
}

/// Room for a batch; nothing is written yet.
void GpuDecoder::start(int64_t batch, int64_t length, const CacheOptions& options) {
  if (state_ == nullptr || !state_->fits(batch, length, options))
    state_ = std::make_unique<State>(*weights_, batch, length, options);
  // Both: rows that rest read places that were never written.
  for (const Tensor& sources : {state_->sources, state_->next_sources})
    Device::current().fill(sources.local().pointer, 0, sources.bytes());
}

/// One decoder layer after another over the rows of the step: [rows, embed].
Tensor GpuDecoder::queue_layers() {
  const State& s = *state_;
  const GpuKernels& kernels = Device::current().kernels();
  const Stream stream = Device::current().stream();
  const Tensor attended(Spec{{s.row, {axis::kJoinedKv, weights_->joined_kv()}}, weights_->dtype()});
  const StepAttention attention{
      .self =
          [&](size_t i, const DecodeRows& rows, const void* key, const void* value,
              const Tensor& bias) {
            kernels.decode_self({.rows = rows,
                                 .cache = s.self(i),
                                 .key = key,
                                 .value = value,
                                 .key_stride = rows.query_stride,
                                 .positions = s.input(kPositions),
                                 .sources = sources(s.sources),
                                 .bias = bias.absent() ? nullptr : bias.local().data<float>(),
                                 .biases = bias.absent() ? 0 : bias.size(1)},
                                stream);
          },
      .cross =
          [&](size_t i, const DecodeRows& rows) {
            kernels.decode_cross({.rows = rows, .cache = s.cross(i), .lengths = ints(s.lengths)},
                                 stream);
          },
      .positions = s.input(kPositions)};
  return decoding::queue_layers(*weights_, weights_->embedding.rows(s.input(kTokens), {s.row}),
                                {.items = s.batch, .decodes = s.options.num_decodes}, attended,
                                attention);
}

/// From the inputs on the device to the logits there.
void GpuDecoder::queue_logits() {
  const State& s = *state_;
  Device& device = Device::current();
  const GpuKernels& kernels = device.kernels();
  if (s.options.num_decodes > 1) {  // else all sources are 0
    kernels.follow_sources({.items = s.batch,
                            .decodes = s.options.num_decodes,
                            .max_length = s.options.max_length,
                            .positions = s.input(kPositions),
                            .parents = s.input(kParents),
                            .sources = sources(s.sources),
                            .next = sources(s.next_sources)},
                           device.stream());
    device.copy(s.sources.local().pointer, s.next_sources.local().pointer, s.sources.bytes());
  }
  const Tensor x = queue_layers();
  Products(s.rows, *weights_).project(x, s.logits);
}

/// To the largest of them.
void GpuDecoder::queue_answer() {
  queue_logits();
  const State& s = *state_;
  TopRows top = s.parts_of(s.best.local().pointer);
  top.logits = s.logits.local().data<float>();
  Device::current().kernels().top(top, Device::current().stream());
}

void GpuDecoder::queue_step() {
  const State& s = *state_;
  Device& device = Device::current();
  device.copy(ints(s.step_inputs), s.host_inputs.get(), s.step_inputs.bytes());
  queue_answer();
  device.copy(s.host_best.get(), s.best.local().pointer, s.best.bytes());
}

void GpuDecoder::run_step(const StepInput& input) {
  const Alone alone;
  State& s = *state_;
  last_rows_.assign(input.rows.begin(), input.rows.end());
  // Rows that rest run too, at a place behind the cache, where nothing is written. The step before
  // was waited for, so its inputs are no longer read.
  int32_t* const tokens = s.host_input(kTokens);
  int32_t* const positions = s.host_input(kPositions);
  int32_t* const parents = s.host_input(kParents);
  std::fill_n(tokens, s.rows, 0);
  std::fill_n(positions, s.rows, static_cast<int32_t>(s.options.max_length));
  std::iota(parents, parents + s.rows, 0);
  for (size_t i = 0; i < input.rows.size(); ++i) {
    const int32_t row = input.rows[i];
    tokens[row] = input.tokens[i];
    positions[row] = input.positions[i];
    if (!input.sources.empty()) parents[row] = input.sources[i];
  }
  s.step.run(weights_->ranks, [this] { queue_step(); });
}

/// Puts the first input of a search that runs here.
void GpuDecoder::ask_first(
    const std::function<std::array<int32_t, 2>(int64_t row)>& token_and_position) {
  const State& s = *state_;
  HostArray inputs(DType::i32, {kInputRows, s.rows});
  for (int64_t row = 0; row < s.rows; ++row) {
    const auto put = [&](InputRow which, int32_t value) {
      inputs.as<int32_t>()[static_cast<size_t>(which * s.rows + row)] = value;
    };
    const auto [token, position] = token_and_position(row);
    put(kTokens, token);
    put(kPositions, position);
    put(kParents, static_cast<int32_t>(row));
  }
  s.step_inputs.set(inputs);
}

std::optional<BeamTrace> GpuDecoder::run_beams(const BeamPlan& plan) {
  State& s = *state_;
  QT_ASSERT(plan.items == s.batch && plan.beams == s.options.num_decodes);
  if (2 * plan.beams > s.top) return std::nullopt;
  const Alone alone;
  if (s.beams == nullptr || !s.beams->fits(plan)) {
    s.beam_step.forget();
    s.beams = std::make_unique<GpuBeams>(plan);
  }
  s.beams->start(plan);
  ask_first([&](int64_t row) {
    const auto item = static_cast<size_t>(row / plan.beams);
    return std::array{plan.first_tokens[item], plan.prompt_lengths[item]};
  });
  const auto step = [this] {
    const State& now = *state_;
    queue_answer();
    const TopRows best = now.parts_of(now.best.local().pointer);
    int32_t* const next = ints(now.step_inputs);
    now.beams->queue({.vocab = best.vocab,
                      .resting_position = static_cast<int32_t>(now.options.max_length),
                      .logits = now.logits.local().data<float>(),
                      .top = best.top,
                      .values = best.values,
                      .indices = best.indices,
                      .log_sums = best.log_sums,
                      .next_tokens = next + kTokens * now.rows,
                      .next_positions = next + kPositions * now.rows,
                      .next_parents = next + kParents * now.rows});
  };
  for (int64_t i = 1; i <= plan.steps; ++i) {
    s.beam_step.run(weights_->ranks, step);
    if (i % kStepsBetweenLooks == 0 && s.beams->all_settled()) break;
  }
  s.beams->all_settled();
  return s.beams->trace();
}

std::optional<SampleTrace> GpuDecoder::run_samples(const SamplePlan& plan) {
  State& s = *state_;
  QT_ASSERT(plan.rows == s.rows && plan.decodes == s.options.num_decodes);
  if (vocab_size() > kMostDrawnFrom) return std::nullopt;
  const Alone alone;
  if (s.samples == nullptr || !s.samples->fits(plan)) {
    s.sample_step.forget();
    s.samples = std::make_unique<GpuSamples>(plan);
  }
  s.samples->start(plan);
  ask_first([&](int64_t row) {
    const auto r = static_cast<size_t>(row);
    return std::array{plan.first_tokens[r], plan.indices[r]};
  });
  const auto step = [this] {
    queue_logits();
    const State& now = *state_;
    int32_t* const next = ints(now.step_inputs);
    now.samples->queue(now.logits.local().data<float>(), vocab_size(),
                       {.resting_position = static_cast<int32_t>(now.options.max_length),
                        .next_tokens = next + kTokens * now.rows,
                        .next_positions = next + kPositions * now.rows});
  };
  for (int64_t i = 1; i <= plan.steps; ++i) {
    s.sample_step.run(weights_->ranks, step);
    if (i % kStepsBetweenLooks == 0 && s.samples->all_ended()) break;
  }
  return s.samples->trace();
}

std::span<float> GpuDecoder::step(const StepInput& input) {
  run_step(input);
  return fetch_logits();
}

std::span<float> GpuDecoder::fetch_logits() {
  State& s = *state_;
  Device& device = Device::current();
  if (s.host_logits == nullptr) s.host_logits = device.pinned(s.logits.bytes());
  device.copy_out(s.host_logits.get(), s.logits.local().pointer, s.logits.bytes());
  auto* const all = reinterpret_cast<float*>(s.host_logits.get());
  const auto vocab = static_cast<size_t>(vocab_size());
  for (size_t i = 0; i < last_rows_.size(); ++i)  // rows increase: none is overwritten before
    if (const auto row = static_cast<size_t>(last_rows_[i]); row != i)
      std::memmove(all + i * vocab, all + row * vocab, vocab * sizeof(float));
  return {all, last_rows_.size() * vocab};
}

std::span<const float> GpuDecoder::last_logits() { return fetch_logits(); }

void GpuDecoder::step_without_logits(const StepInput& input) {
  run_step(input);
  Device::current().synchronize();
}

std::vector<RowSummary> GpuDecoder::step_greedily(const StepInput& input, bool) {
  step_without_logits(input);
  const TopRows best = state_->parts_of(state_->host_best.get());
  std::vector<RowSummary> rows;
  for (const int32_t row : last_rows_)
    rows.push_back({best.values[row * best.top], std::max(best.indices[row * best.top], 0),
                    best.log_sums[row]});
  return rows;
}

std::vector<RowSelection> GpuDecoder::select_last(const SelectOptions& options) {
  const TopRows best = state_->parts_of(state_->host_best.get());
  std::vector<RowSelection> rows;
  for (size_t i = 0; i < last_rows_.size(); ++i) {
    const float* const values = best.values + last_rows_[i] * best.top;
    const int32_t* const indices = best.indices + last_rows_[i] * best.top;
    RowSelection row;
    row.summary = {values[0], indices[0], best.log_sums[last_rows_[i]]};
    // Enough where what was not sent lies too low: the last that was sent does.
    if (options.count >= best.top || indices[best.top - 1] < 0 || std::isnan(row.summary.log_sum))
      return TokenModel::select_last(options);
    if (options.count > 0) {
      const float least = values[options.count - 1];
      const float offset = options.offsets.empty() ? 0 : options.offsets[i];
      const float bound = least - tie_margin(offset, values[0], least);
      if (values[best.top - 1] >= bound) return TokenModel::select_last(options);
      for (int64_t c = 0; values[c] >= bound; ++c) row.candidates.push_back(indices[c]);
      std::sort(row.candidates.begin(), row.candidates.end());
      for (const int32_t candidate : row.candidates)
        row.values.push_back(values[std::find(indices, indices + best.top, candidate) - indices]);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace quintet::decoding
