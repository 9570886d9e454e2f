#pragma once
// Predictions with a configured model: the decode function its gin files name, with the arguments
// bound there.
//
//   Predictor predictor(*configured);                       // packs the parameters as they are now
//   for (int64_t row = 0; row < rows; ++row) use(predictor.predict(batch).best(row));

#include <optional>

#include "apps/flags/decode_flags.h"
#include "apps/model/quantized_model.h"
#include "models/configurables.h"
#include "models/decoding/predict.h"
#include "runtime/base/threefry.h"

namespace quintet {

/// The model's parameters as they are now, or a quantized checkpoint's, for decoding on the CPU.
std::unique_ptr<decoding::PackedNetwork> pack(const BaseModel& model, const Weights& weights = {});
/// Of the encoder alone: a network without decoder.
std::unique_ptr<decoding::PackedNetwork> pack_encoder(const BaseModel& model,
                                                      const Weights& weights);

/// The same for decoding on a GPU.
decoding::InferenceWeights inference_weights(const BaseModel& model, const Weights& weights);

/// Throws a usage error for a model that encodes and answers nothing.
void check_answers(const BaseModel& model);

class Predictor {
 public:
  /// `decode`: beams or sampling, whatever the gin files say. Throws a usage error if the model's decode_fn is not one of ours.
  explicit Predictor(const ConfiguredModel& model, const DecodeFlags& decode = {},
                     const Weights& weights = {}, CacheType cache_type = CacheType::native);
  /// `batch`: model features of equal lengths. Tokens end at the first EOS; the best decode is the
  /// last. Samples are drawn with `key`.
  decoding::Decodes predict(const HostArrays& batch, Key key = {}) const;
  /// Whether gin files ask for every decode, not the best alone.
  bool returns_all_decodes() const { return returns_all_decodes_; }
  /// What each request gets, one a row of the batch, instead of the decode function's predictions.
  decoding::Answers answer(const HostArrays& batch,
                           std::vector<decoding::DecodingRequest> requests) const;
  /// BaseModel::score_tokens by the packed parameters, in float32.
  BaseModel::TokenScores score(const HostArrays& batch) const;
  /// BaseModel::eval_fn of the model that was packed.
  Metrics losses(const BaseModel& model, const HostArrays& batch) const;
  int32_t eos_id() const { return options_.eos_id; }

 private:
  bool decoder_only_ = false, returns_all_decodes_ = false;
  std::unique_ptr<decoding::PackedNetwork> network_;  // on the CPU, and of decoder-only models
  std::unique_ptr<decoding::GpuDecoder> device_;      // on a GPU
  decoding::PredictOptions options_;
};

/// Lets go of the parameters that generation has copies of: on the CPU all, on a GPU those kept in fewer
/// bits or held by several ranks together.
void drop_packed(BaseModel& model, const Weights& weights);

}  // namespace quintet
