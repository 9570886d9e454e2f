// A network on the CPU: inputs of new jobs are encoded together without padding, and a step is one
// parallel region. What a row gets does not depend, bit for bit, on what else is in the batch
// (models/decoding/cpu/decoder_step.h).

#include <cstdlib>
#include <new>

#include "models/decoding/cpu/cross_keys.h"
#include "models/decoding/cpu/decoder_step.h"
#include "models/decoding/encoding.h"
#include "models/serving/cpu_pages.h"
#include "models/serving/paged_rows.h"

namespace quintet::serving {

using decoding::PackedNetwork;

namespace {

struct CpuInput final : InputCache {
  std::vector<SharedKeys> cross;  // [layers, heads]
  std::vector<float*> prefix;     // slots of all tokens but the last, which rows read again
  CpuPages::Page cross_memory;
  std::vector<CpuPages::Page> pages;  // of the prefix
};

struct CpuRows final : PagedRows<CpuPages> {
  CpuRows(CpuPages& pages, const RowLimits& limits, const CpuInput& read)
      : PagedRows(pages, limits, read.prefix), input(read) {}
  const CpuInput& input;
};

class CpuNetwork final : public ServedNetwork {
 public:
  CpuNetwork(const PackedNetwork& network, const EngineOptions& options)
      : network_(network),
        spec_(network.spec()),
        layer_(spec_.decoder.layer),
        pages_(spec_.decoder, options.page_tokens, options.cache_type),
        bidirectional_(options.bidirectional_prefix),
        bias_(network.decoder(), options.max_length) {
    spec_.decoder.sparse.check_generates();
  }

  int64_t vocab_size() const override { return spec_.vocab_size; }
  bool decoder_only() const override { return spec_.decoder_only(); }

  int64_t input_bytes(const Tokens& inputs) const override {
    if (decoder_only()) return bytes_for(pages_, std::ssize(inputs));
    return 4 * decoding::cross_floats(spec_.decoder, std::ssize(inputs), pages_.layout().type);
  }
  int64_t row_bytes(const RowLimits& limits) const override {
    return limits.rows * bytes_for(pages_, limits.max_length);
  }

  std::vector<std::unique_ptr<InputCache>> read(std::span<const Tokens* const> inputs) override;
  std::vector<std::vector<float>> encode(std::span<const Tokens* const> inputs) override {
    return encode_each(network_, inputs);
  }

  std::unique_ptr<RowCaches> rows(const InputCache& input, const RowLimits& limits) override {
    return std::make_unique<CpuRows>(pages_, limits, static_cast<const CpuInput&>(input));
  }
  std::vector<JobAnswer> step(std::span<const StepJob> jobs) override;

 private:
  std::unique_ptr<CpuInput> make(const Tokens& inputs);
  void fill_prefixes(std::span<const Tokens* const> inputs,
                     std::span<const std::unique_ptr<CpuInput>> made) const;
  void fill_cross(std::span<const Tokens* const> inputs,
                  std::span<const std::unique_ptr<CpuInput>> made) const;

  const PackedNetwork& network_;
  const ModelSpec& spec_;
  const LayerConfig& layer_;
  CpuPages pages_;
  const bool bidirectional_;
  const decoding::BiasDiagonals bias_;
  std::vector<float> logits_;
};

/// Room for what is read of inputs.
std::unique_ptr<CpuInput> CpuNetwork::make(const Tokens& inputs) {
  auto made = std::make_unique<CpuInput>();
  const auto n = static_cast<int64_t>(inputs.size());
  if (decoder_only()) {
    for (int64_t t = 0; t < n; ++t) {
      if (t % pages_.tokens() == 0) made->pages.push_back(pages_.take());
      made->prefix.push_back(pages_.slot(made->pages.back(), t));
    }
    return made;
  }
  constexpr size_t kAlign = 256;
  const auto wanted = static_cast<size_t>(input_bytes(inputs));
  made->cross_memory.reset(
      static_cast<float*>(std::aligned_alloc(kAlign, (wanted + kAlign - 1) / kAlign * kAlign)));
  if (made->cross_memory == nullptr) throw std::bad_alloc();
  float* next = made->cross_memory.get();
  for (int64_t i = 0; i < spec_.decoder.num_layers * layer_.kv_heads(); ++i) {
    const CacheType type = pages_.layout().type;
    made->cross.push_back(SharedKeys::at(next, n, layer_.head_dim, type));
    // The kernels read whole vectors of keys: what lies behind the last token must be numbers.
    const SharedKeys& keys = made->cross.back();
    const int64_t floats = SharedKeys::floats(n, layer_.head_dim, type);
    std::fill_n(next, type == CacheType::native ? layer_.head_dim * keys.stride : floats, 0.0f);
    next += floats;
  }
  return made;
}

void CpuNetwork::fill_prefixes(std::span<const Tokens* const> inputs,
                               std::span<const std::unique_ptr<CpuInput>> made) const {
  run_stack(network_, network_.decoder(), decoding::joined(inputs, !bidirectional_),
            [&](int64_t layer, int64_t item, int64_t index, const float* key, const float* value) {
              float* slot = made[static_cast<size_t>(item)]->prefix[static_cast<size_t>(index)];
              for (int64_t h = 0; h < layer_.kv_heads(); ++h)
                append_to_cache(pages_.layout().at(layer, h), slot, key + h * layer_.head_dim,
                                value + h * layer_.head_dim, layer_.head_dim);
            });
  // The last token of a prefix is read again by the first step, which writes it at a row's own
  // slot.
  for (const auto& input : made) input->prefix.pop_back();
}

void CpuNetwork::fill_cross(std::span<const Tokens* const> inputs,
                            std::span<const std::unique_ptr<CpuInput>> made) const {
  std::vector<float> encoded = run_encoder(network_, inputs);
  std::vector<SharedKeys> keys;
  for (int64_t layer = 0; layer < spec_.decoder.num_layers; ++layer)
    for (const auto& input : made) {
      const auto first = input->cross.begin() + layer * layer_.kv_heads();
      keys.insert(keys.end(), first, first + layer_.kv_heads());
    }
  finish_encoding(network_, decoding::joined(inputs, false), encoded, keys);
}

std::vector<std::unique_ptr<InputCache>> CpuNetwork::read(std::span<const Tokens* const> inputs) {
  std::vector<std::unique_ptr<CpuInput>> made;
  for (const Tokens* tokens : inputs) made.push_back(make(*tokens));
  if (decoder_only())
    fill_prefixes(inputs, made);
  else
    fill_cross(inputs, made);
  return {std::make_move_iterator(made.begin()), std::make_move_iterator(made.end())};
}

std::vector<JobAnswer> CpuNetwork::step(std::span<const StepJob> jobs) {
  std::vector<decoding::StepRow> rows;
  std::vector<decoding::StepGroup> groups;
  bool has_drafts = false;
  for (const StepJob& job : jobs) {
    has_drafts |= job.steps.front().position != job.steps.back().position;
    auto& caches = static_cast<CpuRows&>(*job.rows);
    caches.follow(job.steps);
    groups.push_back({.begin = std::ssize(rows),
                      .end = std::ssize(rows) + std::ssize(job.steps),
                      .cross = caches.input.cross.data(),
                      .cross_layer = layer_.kv_heads()});
    for (const decoding::RowStep& row : job.steps) {
      const std::span<float* const> past = caches.past(row);
      rows.push_back({.token = row.token,
                      .position = static_cast<int32_t>(past.size()) - 1,
                      .slot = past.back(),
                      .past = past});
    }
  }
  const auto vocab = static_cast<size_t>(spec_.vocab_size);
  logits_.resize(rows.size() * vocab);
  run_step(network_,
           {.layout = pages_.layout(),
            .bias = &bias_,
            .rows = rows,
            .groups = groups,
            .has_drafts = has_drafts},
           logits_.data());
  std::vector<JobAnswer> answers;
  for (const decoding::StepGroup& group : groups)
    answers.push_back({.logits = std::span(logits_).subspan(
                           static_cast<size_t>(group.begin) * vocab,
                           static_cast<size_t>(group.end - group.begin) * vocab)});
  return answers;
}

}  // namespace

std::unique_ptr<ServedNetwork> cpu_network(const PackedNetwork& network,
                                           const EngineOptions& options) {
  options.check();
  return std::make_unique<CpuNetwork>(network, options);
}

}  // namespace quintet::serving
