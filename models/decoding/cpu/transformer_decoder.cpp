#include "models/decoding/cpu/transformer_decoder.h"

#include "models/decoding/cpu/cross_keys.h"
#include "models/decoding/cpu/decoder_step.h"

namespace quintet::decoding {

struct TransformerDecoder::State {
  SelfCache cache;
  BiasDiagonals bias;
  Sequences encoder_input;
  std::vector<float> encoded;  // [encoder tokens, embed]
  std::shared_ptr<float> cross_memory;
  std::vector<SharedKeys> cross;  // [layers, items, heads]
};

TransformerDecoder::TransformerDecoder(const PackedNetwork& network)
    : network_(network), state_(std::make_unique<State>()) {
  network.spec().decoder.sparse.check_generates();
}
TransformerDecoder::~TransformerDecoder() = default;

namespace {

/// The tokens whose mask is above 0.
Sequences without_padding(std::span<const int32_t> tokens, std::span<const int32_t> mask,
                          int64_t batch, int64_t length) {
  Sequences s;
  for (int64_t i = 0; i < batch; ++i) {
    for (int64_t t = 0; t < length; ++t)
      if (mask[static_cast<size_t>(i * length + t)] > 0) {
        s.tokens.push_back(tokens[static_cast<size_t>(i * length + t)]);
        s.positions.push_back(static_cast<int32_t>(t));
      }
    if (static_cast<int64_t>(s.tokens.size()) == s.size()) {  // nothing but padding
      s.tokens.push_back(0);
      s.positions.push_back(0);
    }
    const auto end = static_cast<int64_t>(s.tokens.size());
    s.limits.resize(s.tokens.size(), end - s.size());
    s.begin.push_back(end);
  }
  return s;
}

}  // namespace

void TransformerDecoder::begin(std::span<const int32_t> tokens, int64_t batch, int64_t length,
                               const CacheOptions& options, std::span<const int32_t> mask) {
  const ModelSpec& spec = network_.spec();
  QT_CHECK(!spec.decoder_only(), "generation: a decoder-only network has no encoder inputs");
  QT_CHECK(batch > 0 && length > 0,
           "generation: encoder inputs [batch={}, length={}] must not be empty", batch, length);
  if (mask.empty()) mask = tokens;
  QT_ASSERT(static_cast<int64_t>(tokens.size()) == batch * length && mask.size() == tokens.size());
  State& s = *state_;
  s.cache.start(spec.decoder, batch, options);
  s.bias = BiasDiagonals(network_.decoder(), options.max_length);
  s.encoder_input = without_padding(tokens, mask, batch, length);
  s.encoded = run_stack(network_, network_.encoder(), s.encoder_input);
  s.cross = lay_out_cross(spec.decoder, s.encoder_input, options.type, s.cross_memory);
  finish_encoding(network_, s.encoder_input, s.encoded, s.cross);
  batch_ = batch;
}

void TransformerDecoder::begin_prefix(std::span<const int32_t> tokens, int64_t batch,
                                      int64_t length, std::span<const int32_t> prefix,
                                      bool bidirectional, const CacheOptions& options) {
  const ModelSpec& spec = network_.spec();
  QT_CHECK(spec.decoder_only(), "generation: a prefix needs a decoder-only network");
  QT_ASSERT(static_cast<int64_t>(tokens.size()) == batch * length);
  State& s = *state_;
  s.cache.start(spec.decoder, batch, options);
  s.bias = BiasDiagonals(network_.decoder(), options.max_length);
  s.encoder_input = {};
  s.encoded.clear();
  s.cross.clear();
  batch_ = batch;
  Sequences sequences;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t n = prefix[static_cast<size_t>(i)];
    QT_CHECK(n <= options.max_length,
             "generation: a prefix of {} tokens exceeds the maximum length {}", n,
             options.max_length);
    for (int64_t t = 0; t < n; ++t) {
      sequences.tokens.push_back(tokens[static_cast<size_t>(i * length + t)]);
      sequences.positions.push_back(static_cast<int32_t>(t));
      sequences.limits.push_back(bidirectional ? n : t + 1);
    }
    sequences.begin.push_back(static_cast<int64_t>(sequences.tokens.size()));
  }
  run_stack(network_, network_.decoder(), sequences,
            [&](int64_t layer, int64_t item, int64_t index, const float* key, const float* value) {
              float* slot = s.cache.slot(item * options.num_decodes, index);
              for (int64_t h = 0; h < spec.decoder.layer.kv_heads(); ++h)
                append_to_cache(
                    s.cache.layout().at(layer, h), slot, key + h * spec.decoder.layer.head_dim,
                    value + h * spec.decoder.layer.head_dim, spec.decoder.layer.head_dim);
            });
}

std::span<float> TransformerDecoder::step(const StepInput& input) {
  State& s = *state_;
  s.cache.follow(input);
  const ModelSpec& spec = network_.spec();
  logits_.resize(input.rows.size() * static_cast<size_t>(spec.vocab_size));
  std::vector<StepRow> rows;
  std::vector<StepGroup> groups;
  int64_t last_item = -1;
  for (size_t i = 0; i < input.rows.size(); ++i) {
    const int32_t row = input.rows[i], position = input.positions[i];
    const bool inside = position < s.cache.max_length();
    rows.push_back({.token = input.tokens[i],
                    .position = position,
                    .slot = inside ? s.cache.slot(row, position) : nullptr,
                    .past = s.cache.places_of(row, inside ? position + 1 : s.cache.max_length())});
    const int64_t item = row / s.cache.decodes();
    if (item != last_item)
      groups.push_back({.begin = static_cast<int64_t>(i),
                        .cross = s.cross.empty()
                                     ? nullptr
                                     : s.cross.data() + item * spec.decoder.layer.kv_heads(),
                        .cross_layer = batch_ * spec.decoder.layer.kv_heads()});
    groups.back().end = static_cast<int64_t>(i) + 1;
    last_item = item;
  }
  if (!rows.empty())
    run_step(network_,
             {.layout = s.cache.layout(), .bias = &s.bias, .rows = rows, .groups = groups},
             logits_.data());
  return logits_;
}

std::span<const float> TransformerDecoder::encoded(int64_t item) const {
  const int64_t e = network_.spec().emb_dim();
  const auto& begin = state_->encoder_input.begin;
  const int64_t first = begin[static_cast<size_t>(item)],
                end = begin[static_cast<size_t>(item + 1)];
  return std::span(state_->encoded)
      .subspan(static_cast<size_t>(first * e), static_cast<size_t>((end - first) * e));
}

int64_t TransformerDecoder::cross_bytes() const {
  int64_t floats = 0;
  for (const SharedKeys& keys : state_->cross)
    floats += SharedKeys::floats(keys.length, network_.spec().decoder.layer.head_dim, keys.type);
  return 4 * floats;
}

int64_t TransformerDecoder::cache_bytes() const { return state_->cache.bytes() + cross_bytes(); }

int64_t TransformerDecoder::read_bytes(int64_t position) const {
  const SelfCache& cache = state_->cache;
  const LayerConfig& layer = network_.spec().decoder.layer;
  const int64_t vectors = 2 * batch_ * cache.decodes() * (position + 1) * layer.kv_heads() *
                          network_.spec().decoder.num_layers;
  return 4 * vectors * cached_floats(layer.head_dim, cache.layout().type) + cross_bytes();
}

}  // namespace quintet::decoding
