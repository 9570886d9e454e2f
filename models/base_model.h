#pragma once
// A model: a network with its loss, metrics and predictions, after t5x/models.py.
//
//   EncoderDecoderModel model(T5Config{...}, LossOptions{...});
//   model.parameters().initialize(key);
//   const LossOutput out = model.loss_fn(batch, Rows::all(batch), context);

#include <functional>
#include <memory>
#include <span>

#include "models/loss_weights.h"
#include "models/network.h"
#include "runtime/trainer/batch_rows.h"
#include "runtime/trainer/loss_output.h"

namespace quintet {

/// gin: the loss arguments of models.EncoderDecoderModel and DecoderOnlyModel.
struct LossOptions {
  double label_smoothing = 0;
  double z_loss = 0;
  LossNormalizingFactor loss_normalizing_factor;
  // Of models with experts: their routers' losses, means over layers, times these are added.
  double aux_loss_factor = 0, router_z_loss_factor = 0;
};

/// Rows [begin, end) of the rows of a batch that this rank has (batch_rows.h): a microbatch.
struct Rows {
  int64_t begin = 0, end = 0;
  bool are_whole =
      false;  // tensors made of them are an array of their own, not a part of the batch's
  static Rows all(const HostArrays& batch);
};

/// What a network makes of a batch, teacher-forced: all that losses and scores are made of.
struct TargetOutput {
  Tensor hidden;  // of the decoder's last norm: [batch, length, embed]
  Projection projection;
  std::vector<LayerRouting> routings = {};  // of its sparse layers
};

class BaseModel {
 public:
  BaseModel(const LossOptions& options, ModelSpec spec)
      : options_(options), spec_(std::move(spec)) {}
  virtual ~BaseModel() = default;

  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  const LossOptions& loss_options() const { return options_; }
  /// Throws a usage error where the loss of several data shards is no sum of their examples', whose gradients are clipped
  /// one by one then.
  void check_example_gradients(int64_t data_shards) const;
  const ModelSpec& spec() const { return spec_; }
  int64_t vocab_size() const { return spec_.vocab_size; }

  /// Loss and metrics of a microbatch of model features (int32 [rows, length]), over the rows of all
  /// ranks. With a tape recording, the loss can be differentiated. Throws kData naming a missing
  /// feature.
  LossOutput loss_fn(const HostArrays& batch, Rows rows, const Context& context) const;
  /// Whether loss_of is another than T5X's: evaluation then asks it, and does not sum T5X's losses itself; training
  /// expects that it may scale a cross-entropy (TrainerOptions::loss_is_total).
  virtual bool has_own_loss() const { return false; }
  /// Before a step on `batch` (null: this rank has none): what the loss counts in the rows of all ranks
  /// joins the batch (kStepCounts), and the ranks' flags are agreed on, in one collective.
  StepFlags agree(HostArrays* batch, int64_t microbatches, const StepFlags& own) const;
  /// Teacher-forced metrics without dropout.
  Metrics eval_fn(const HostArrays& batch) const;
  /// The same by this rank alone, of what a network with these parameters has made of the batch.
  Metrics eval_fn(const HostArrays& batch, const TargetOutput& output) const;
  /// What the losses of a batch add up to, each times its weight; `correct` counts targets of a weight that is not 0.
  struct LossSums {
    double loss = 0, z_loss = 0, correct = 0;
    std::vector<LayerRouting> routings = {};  // of sparse layers
  };
  /// The same metrics of losses that another computes, with the weights given to it, float32 [batch, length].
  Metrics eval_fn(const HostArrays& batch,
                  const std::function<LossSums(std::span<const float> weights)>& sums_of) const;
  /// Scalars: of all sparse layers, times their factors.
  struct RouterLosses {
    Tensor auxiliary, z;
  };
  /// Log-probability of each target, times its loss weight; by this rank alone, not on a mesh.
  struct TokenScores {
    HostArray scores, weights;  // float32 [batch, length]
    /// Over each row: T5X's score_batch.
    std::vector<double> sums() const;
  };
  /// `sown`, if given, has what the network's parts make that their configuration lets sow, as T5X's intermediates.
  TokenScores score_tokens(const HostArrays& batch, SownValues* sown = nullptr) const;
  /// The same of what a network has made of the batch.
  static TokenScores score_tokens(const HostArrays& batch, const TargetOutput& output);
  /// Logits [batch, length, vocab] of the target positions; by this rank alone.
  Tensor logits(const HostArrays& batch) const;
  /// Encoder output [batch, length, embed] for tokens and segments (0 is padding), int32 [batch,
  /// length]. Throws a usage error for a model without encoder.
  virtual Tensor encode(const Tensor& tokens, const Tensor& segments, const Context& context) const;
  /// Of a batch's encoder features.
  Tensor encode(const HostArrays& batch, Rows rows, const Context& context) const;

 protected:
  /// Output of the decoder's last norm for rows of a batch: [batch, length, embed].
  virtual Tensor hidden(const HostArrays& batch, Rows rows, const Context& context) const = 0;
  virtual Projection projection() const = 0;
  /// The features whose tokens count for non_padding_fraction, by their name in metrics.
  virtual std::vector<std::pair<std::string, std::string>> counted_features(
      const HostArrays& batch) const = 0;

  /// The loss of what the network has made of a microbatch: T5X's.
  virtual LossOutput loss_of(const TargetOutput& output, const HostArrays& batch, Rows rows,
                             bool train) const;
  /// T5X's compute_base_metrics from the sums of a microbatch's losses.
  Metrics base_metrics(const HostArrays& batch, Rows rows, const LossSums& sums) const;
  /// Throws a usage error for a dtype that models do not compute in.
  void set_compute_dtype(const std::string& dtype);
  Parameters parameters_;

 private:
  RouterLosses router_losses(const std::vector<LayerRouting>& routings) const;
  /// With the routers' losses and metrics; in training also the experts' load.
  LossOutput with_routings(LossOutput output, const std::vector<LayerRouting>& routings,
                           bool train) const;

  LossOptions options_;
  ModelSpec spec_;
};

/// gin: models.EncoderDecoderModel.
class EncoderDecoderModel : public BaseModel {
 public:
  EncoderDecoderModel(const T5Config& config, const LossOptions& options);
  const Transformer& network() const { return network_; }
  using BaseModel::encode;
  Tensor encode(const Tensor& tokens, const Tensor& segments,
                const Context& context) const override {
    return network_.encode(tokens, segments, context);
  }

 protected:
  Tensor hidden(const HostArrays& batch, Rows rows, const Context& context) const override;
  Projection projection() const override { return network_.projection(); }
  std::vector<std::pair<std::string, std::string>> counted_features(
      const HostArrays& batch) const override;

 private:
  Transformer network_;
};

/// gin: models.DecoderOnlyModel; with inputs_bidirectional_attention a prefix LM.
class DecoderOnlyModel : public BaseModel {
 public:
  DecoderOnlyModel(const TransformerConfig& config, const LossOptions& options,
                   bool inputs_bidirectional_attention);
  const DecoderOnlyTransformer& network() const { return network_; }

 protected:
  Tensor hidden(const HostArrays& batch, Rows rows, const Context& context) const override;
  Projection projection() const override { return network_.projection(); }
  std::vector<std::pair<std::string, std::string>> counted_features(
      const HostArrays& batch) const override;

 private:
  DecoderOnlyTransformer network_;
};

}  // namespace quintet
