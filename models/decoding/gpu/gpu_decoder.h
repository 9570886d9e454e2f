#pragma once
// A network on the current device as a TokenModel: what TransformerDecoder is on the CPU.
//
//   GpuDecoder decoder(model);   // shares its parameters
//   decoder.begin(encoder_tokens, batch, length, {.num_decodes = 4, .max_length = 128});
//   const Decodes out = beam_search(prompts, decoder, eos_id, {.num_decodes = 4});
//
// The encoder runs once; cross-attention's keys and values are computed once an item and shared by
// its decodes, as are a decoder-only network's of its prefixes; self-attention's are written once and
// never moved. A step is recorded once (a CUDA graph) and repeated, over all rows whether they rest or
// not. In the dtype the parameters are used in (models/base_model.h). Up to 8 rows, and in bfloat16 64 or
// 128 (SmallBatchMatmul::takes_tiles), take kernels that do the norm, the product and what follows it at once and leave
// logits in float32; more rows take the ops, whose logits are rounded to the dtype.

#include <array>
#include <functional>
#include <memory>

#include "kernels/decode_attention/decode_rows.h"
#include "models/decoding/cpu/self_cache.h"
#include "models/decoding/gpu/gpu_weights.h"
#include "models/decoding/search/token_model.h"

namespace quintet::decoding {

class GpuDecoder : public TokenModel {
 public:
  /// Encoder-decoder or decoder-only. The model is not read afterwards; its parameters are shared unless
  /// weights are kept in fewer bits. Throws Bug on the CPU.
  explicit GpuDecoder(const BaseModel& model, const InferenceWeights& weights = {});
  ~GpuDecoder() override;

  /// Encodes tokens [batch, length] (0 is padding) and forgets the batch before.
  void begin(std::span<const int32_t> tokens, int64_t batch, int64_t length,
             const CacheOptions& options);
  /// As TransformerDecoder's: fills the cache of a decoder-only network.
  void begin_prefix(std::span<const int32_t> tokens, int64_t batch, int64_t length,
                    std::span<const int32_t> prefix, bool bidirectional,
                    const CacheOptions& options);
  const GpuWeights& weights() const { return *weights_; }
  int64_t vocab_size() const override { return weights_->spec.vocab_size; }
  std::span<float> step(const StepInput& input) override;
  std::vector<RowSummary> step_greedily(const StepInput& input, bool log_sums) override;
  void step_without_logits(const StepInput& input) override;
  /// From the largest elements that every step sends, where they are enough.
  std::vector<RowSelection> select_last(const SelectOptions& options) override;
  /// With up to 16 beams. The host looks every few steps whether the search is over.
  std::optional<BeamTrace> run_beams(const BeamPlan& plan) override;
  /// With vocabularies of up to 2^18. Looks likewise.
  std::optional<SampleTrace> run_samples(const SamplePlan& plan) override;

 protected:
  std::span<const float> last_logits() override;

 private:
  struct State;
  void start(int64_t batch, int64_t length, const CacheOptions& options);
  void run_step(const StepInput& input);
  void queue_step();
  void queue_logits();
  void queue_answer();
  void ask_first(const std::function<std::array<int32_t, 2>(int64_t row)>& token_and_position);
  std::span<float> fetch_logits();
  Tensor queue_layers();

  std::unique_ptr<GpuWeights> weights_;
  std::unique_ptr<State> state_;
  std::vector<int32_t> last_rows_;  // of the last step
};

}  // namespace quintet::decoding
