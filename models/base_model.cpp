#include "models/base_model.h"

#include <algorithm>

#include "models/features.h"
#include "runtime/execution/tape.h"
#include "runtime/mesh/sharding.h"
#include "runtime/trainer/batch_rows.h"

namespace quintet {
namespace {

HostArray scaled_weights(const HostArrays& batch, const LossNormalizingFactor& factor) {
  const LossWeights weights = loss_weights(batch, factor);
  HostArray result = weights.weights;
  for (float& w : result.as<float>())
    w = static_cast<float>(static_cast<double>(w) / weights.factor);
  return result;
}

/// Positions of rows whose token is not padding.
double count_tokens(const HostArray& array, Rows rows) {
  double count = 0;
  const auto ids = array.as<int32_t>();
  for (int64_t i = rows.begin * array.shape[1]; i < rows.end * array.shape[1]; ++i)
    count += ids[static_cast<size_t>(i)] > 0 ? 1 : 0;
  return count;
}

using CountedFeatures = std::vector<std::pair<std::string, std::string>>;

/// kLossCounts numbers of this rank's rows; of features that a model counts fewer of, 0.
std::vector<double> count_rows(const HostArrays& batch, const HostArray& weights, Rows rows,
                               const CountedFeatures& features) {
  const int64_t length = weights.shape[1];
  std::vector<double> counts(2);
  for (int64_t i = rows.begin * length; i < rows.end * length; ++i) {
    const float w = weights.as<float>()[static_cast<size_t>(i)];
    counts[0] += static_cast<double>(w);
    counts[1] += w != 0 ? 1 : 0;
  }
  for (const auto& [name, source] : features) {
    const HostArray& tokens = feature(batch, source);
    // A packed row holds as many examples as its last segment says.
    auto examples = static_cast<double>(rows.end - rows.begin);
    if (source.ends_with("_segment_ids")) {
      examples = 0;
      const auto ids = tokens.as<int32_t>();
      for (int64_t r = rows.begin; r < rows.end; ++r)
        examples += static_cast<double>(*std::max_element(ids.begin() + r * tokens.shape[1],
                                                          ids.begin() + (r + 1) * tokens.shape[1]));
    }
    counts.insert(counts.end(), {count_tokens(tokens, rows), examples});
  }
  QT_ASSERT(counts.size() <= kLossCounts);
  counts.resize(kLossCounts);
  return counts;
}

/// Of the rows of all ranks: what they agreed on before the step, or are asked now.
std::vector<double> counts_of(const HostArrays& batch, Rows rows, const CountedFeatures& features,
                              const LossNormalizingFactor& factor) {
  if (const auto agreed = batch.find(kStepCounts); agreed != batch.end()) {
    const auto all = agreed->second.as<double>();
    const auto first = static_cast<size_t>(rows.begin / (rows.end - rows.begin)) * kLossCounts;
    return {all.begin() + static_cast<std::ptrdiff_t>(first),
            all.begin() + static_cast<std::ptrdiff_t>(first + kLossCounts)};
  }
  std::vector<double> counts =
      count_rows(batch, unscaled_loss_weights(batch, factor), rows, features);
  sum_over_batch(counts);
  return counts;
}

/// T5X's compute_base_metrics. `features`: see BaseModel::counted_features.
Metrics metrics_of(const HostArrays& batch, Rows rows, const CountedFeatures& features,
                   const LossNormalizingFactor& factor, const BaseModel::LossSums& sums) {
  const std::vector<double> counts = counts_of(batch, rows, features, factor);
  const double batch_size =
      static_cast<double>(rows.end - rows.begin) * static_cast<double>(batch_part().count);
  const double all_targets =
      batch_size * static_cast<double>(feature(batch, "decoder_target_tokens").shape[1]);
  const double weight_sum = counts[0];
  Metrics metrics{{"non_padding_fraction/loss_weights", {weight_sum, all_targets}}};
  Metric overall;
  for (size_t i = 0; i < features.size(); ++i) {
    const auto& [name, source] = features[i];
    const double positions = batch_size * static_cast<double>(feature(batch, source).shape[1]);
    const Metric fraction =
        metrics["non_padding_fraction/" + name] = {counts[2 + 2 * i], positions};
    overall.total += fraction.total;
    overall.count += fraction.count;
    metrics["effective_batch_size/" + name] = {counts[3 + 2 * i], 1, true};
  }
  if (overall.count > 0) metrics["non_padding_fraction/overall"] = overall;
  const double loss = sums.loss, z_loss = sums.z_loss;
  metrics["accuracy"] = {sums.correct, counts[1]};
  metrics["loss"] = {loss, 1, true};
  metrics["loss_per_nonpadding_target_token"] = {loss, weight_sum};
  metrics["loss_per_all_target_tokens"] = {loss, all_targets};
  metrics["z_loss"] = {z_loss, 1, true};
  metrics["z_loss_per_all_target_tokens"] = {z_loss, all_targets};
  metrics["cross_ent_loss"] = {loss - z_loss, 1, true};
  metrics["cross_ent_loss_per_all_target_tokens"] = {loss - z_loss, all_targets};
  return metrics;
}

double number(const HostArray& scalar) { return static_cast<double>(scalar.as<float>()[0]); }

/// What the metrics of routers read: their losses, then the counts of each layer.
Tensors routing_reads(const BaseModel::RouterLosses& losses,
                      const std::vector<LayerRouting>& routings) {
  Tensors reads{losses.auxiliary, losses.z};
  for (const LayerRouting& routing : routings) reads.push_back(routing.counts);
  return reads;
}

/// Adds the routers' losses and metrics of T5X's contrib.moe, of the values of routing_reads().
void add_routings(Metrics& metrics, std::span<const HostArray> values) {
  const double auxiliary = number(values[0]), z = number(values[1]);
  for (const char* name :
       {"loss", "loss_per_nonpadding_target_token", "loss_per_all_target_tokens"})
    metrics.at(name).total += auxiliary + z;
  const RoutingMetrics routing = routing_metrics(values.subspan(2));
  for (const auto& [name, value] :
       {std::pair<const char*, double>{"auxiliary_loss", auxiliary},
        {"router_z_loss", z},
        {"fraction_tokens_left_behind", routing.fraction_tokens_left_behind},
        {"expert_usage", routing.expert_usage},
        {"router_confidence", routing.router_confidence}})
    metrics[std::string("experts/") + name] = {value, 1, true};
}

}  // namespace

void BaseModel::check_example_gradients(int64_t data_shards) const {
  if (data_shards == 1) return;
  QT_CHECK(!std::holds_alternative<SpecialLossNormalizingFactor>(options_.loss_normalizing_factor),
           "loss_normalizing_factor: it counts the tokens of {} data shards together, and the "
           "gradient of each example is "
           "clipped; bind None or a number, or train on one data shard",
           data_shards);
  QT_CHECK(!spec_.has_experts(),
           "optimizer_def: it clips the gradient of each example, and the routers' losses of {} "
           "data shards mix their "
           "examples; train on one data shard",
           data_shards);
}

Metrics BaseModel::base_metrics(const HostArrays& batch, Rows rows, const LossSums& sums) const {
  return metrics_of(batch, rows, counted_features(batch), options_.loss_normalizing_factor, sums);
}

Rows Rows::all(const HostArrays& batch) {
  return {0, feature(batch, "decoder_target_tokens").shape[0]};
}

LossOutput BaseModel::loss_fn(const HostArrays& batch, Rows rows, const Context& context) const {
  std::vector<LayerRouting> routings;
  Context logged = context;
  logged.routings = &routings;
  rows.are_whole = context.t5x_dropout;
  const Tensor y = hidden(batch, rows, logged);
  return loss_of({y, projection(), std::move(routings)}, batch, rows, context.train);
}

LossOutput BaseModel::loss_of(const TargetOutput& of, const HostArrays& batch, Rows rows,
                              bool train) const {
  const Projection& logits = of.projection;
  const auto result = ops::cross_entropy(
      of.hidden, logits.kernel, rows_of(batch, rows, "decoder_target_tokens"),
      rows_of(batch, rows,
              [factor = options_.loss_normalizing_factor](const HostArrays& from) {
                return scaled_weights(from, factor);
              }),
      {.label_smoothing = options_.label_smoothing,
       .z_loss = options_.z_loss,
       .logit_scale = logits.logit_scale,
       .tied = logits.tied,
       .is_total = !has_own_loss()});
  // The metrics may outlive the model.
  LossOutput output{
      result.loss,
      {result.loss, result.z_loss, result.correct},
      [rows, counted = counted_features(batch), factor = options_.loss_normalizing_factor](
          const HostArrays& from, std::span<const HostArray> values) {
        return metrics_of(from, rows, counted, factor,
                          {number(values[0]), number(values[1]), number(values[2])});
      }};
  if (of.routings.empty()) return output;
  return with_routings(std::move(output), of.routings, train);
}

BaseModel::RouterLosses BaseModel::router_losses(const std::vector<LayerRouting>& routings) const {
  const auto mean = [&](Tensor LayerRouting::*loss, double factor) {
    Tensor sum = routings[0].*loss;
    for (size_t i = 1; i < routings.size(); ++i) sum = ops::add(sum, routings[i].*loss);
    return ops::scale(sum, factor / static_cast<double>(routings.size()));
  };
  return {mean(&LayerRouting::auxiliary_loss, options_.aux_loss_factor),
          mean(&LayerRouting::z_loss, options_.router_z_loss_factor)};
}

LossOutput BaseModel::with_routings(LossOutput output, const std::vector<LayerRouting>& routings,
                                    bool train) const {
  const RouterLosses losses = router_losses(routings);
  output.loss = ops::add(output.loss, ops::add(losses.auxiliary, losses.z));
  const Tensors more = routing_reads(losses, routings);
  const size_t own = output.reads.size(), routers = more.size();
  output.reads.insert(output.reads.end(), more.begin(), more.end());
  if (train)
    for (const LayerRouting& routing : routings) output.reads.push_back(routing.load);
  output.metrics = [=, base = output.metrics](const HostArrays& batch,
                                              std::span<const HostArray> values) {
    Metrics metrics = base(batch, values.first(own));
    add_routings(metrics, values.subspan(own, routers));
    if (train) metrics.merge(load_metrics(values.subspan(own + routers)));
    return metrics;
  };
  return output;
}

StepFlags BaseModel::agree(HostArrays* batch, int64_t microbatches, const StepFlags& own) const {
  const int64_t parts = std::max<int64_t>(microbatches, 1);
  HostArray counts(DType::f64, {parts, static_cast<int64_t>(kLossCounts)});
  if (batch != nullptr) {
    const HostArray weights = unscaled_loss_weights(*batch, options_.loss_normalizing_factor);
    const CountedFeatures features = counted_features(*batch);
    const int64_t rows = Rows::all(*batch).end / parts;
    for (int64_t part = 0; part < parts; ++part)
      std::ranges::copy(count_rows(*batch, weights, {part * rows, (part + 1) * rows}, features),
                        counts.as<double>().begin() + part * static_cast<int64_t>(kLossCounts));
  }
  const StepFlags agreed = agree_on_step(own, counts.as<double>());
  if (batch != nullptr) (*batch)[kStepCounts] = std::move(counts);
  return agreed;
}

Metrics BaseModel::eval_fn(const HostArrays& batch) const {
  Tape::Recording paused(nullptr);
  HostArrays counted = batch;
  agree(&counted, 1, {});
  return quintet::metrics_of(loss_fn(counted, Rows::all(batch), {}), counted);
}

Metrics BaseModel::eval_fn(const HostArrays& batch, const TargetOutput& output) const {
  Tape::Recording paused(nullptr);
  return quintet::metrics_of(loss_of(output, batch, Rows::all(batch), false), batch);
}

Metrics BaseModel::eval_fn(
    const HostArrays& batch,
    const std::function<LossSums(std::span<const float> weights)>& sums_of) const {
  Tape::Recording paused(nullptr);
  const HostArray weights = scaled_weights(batch, options_.loss_normalizing_factor);
  const LossSums sums = sums_of(weights.as<float>());
  Metrics metrics = base_metrics(batch, Rows::all(batch), sums);
  if (!sums.routings.empty())
    add_routings(metrics,
                 read_together(routing_reads(router_losses(sums.routings), sums.routings)));
  return metrics;
}

std::vector<double> BaseModel::TokenScores::sums() const {
  std::vector<double> sums(static_cast<size_t>(scores.shape[0]));
  const auto length = static_cast<size_t>(scores.shape[1]);
  const auto all = scores.as<float>();
  for (size_t i = 0; i < all.size(); ++i) sums[i / length] += static_cast<double>(all[i]);
  return sums;
}

BaseModel::TokenScores BaseModel::score_tokens(const HostArrays& batch, SownValues* sown) const {
  Tape::Recording paused(nullptr);
  Context context;
  context.sown = sown;
  const Tensor y = hidden(batch, Rows::all(batch), context);
  if (sown != nullptr && spec().decoder.sows.stack)
    context.sow("decoder/logits", projection().logits(y));
  return score_tokens(batch, {y, projection()});
}

BaseModel::TokenScores BaseModel::score_tokens(const HostArrays& batch,
                                               const TargetOutput& output) {
  QT_ASSERT(ExecutionContext::current().sharding == nullptr);
  Tape::Recording paused(nullptr);
  const Rows rows = Rows::all(batch);
  const auto unscaled = [](const HostArrays& from) { return unscaled_loss_weights(from, {}); };
  HostArray weights = unscaled(batch);
  const Projection& logits = output.projection;
  const auto result = ops::cross_entropy(
      output.hidden, logits.kernel, rows_of(batch, rows, "decoder_target_tokens"),
      rows_of(batch, rows, unscaled), {.logit_scale = logits.logit_scale, .tied = logits.tied});
  TokenScores tokens{result.log_prob.to_host(), std::move(weights)};
  const auto scores = tokens.scores.as<float>();
  const auto w = tokens.weights.as<float>();
  for (size_t i = 0; i < w.size(); ++i) scores[i] *= w[i];
  return tokens;
}

void BaseModel::set_compute_dtype(const std::string& dtype) {
  if (!Device::current().is_cpu()) parameters_.set_compute_dtype(dtype_from_name(dtype));
}

Tensor BaseModel::logits(const HostArrays& batch) const {
  QT_ASSERT(ExecutionContext::current().sharding == nullptr);
  Tape::Recording paused(nullptr);
  return projection().logits(hidden(batch, Rows::all(batch), {}));
}

Tensor BaseModel::encode(const Tensor&, const Tensor&, const Context&) const {
  fail(ExitCode::kUsage, "encode: this model has no encoder; use a models.EncoderDecoderModel");
}

Tensor BaseModel::encode(const HostArrays& batch, Rows rows, const Context& context) const {
  return encode(rows_of(batch, rows, "encoder_input_tokens"),
                mask_segments(batch, "encoder_input_tokens", "encoder_segment_ids", rows), context);
}

EncoderDecoderModel::EncoderDecoderModel(const T5Config& config, const LossOptions& options)
    : BaseModel(options, spec_of(config)), network_(Scope(parameters_), config) {
  set_compute_dtype(config.dtype);
}

Tensor EncoderDecoderModel::hidden(const HostArrays& batch, Rows rows,
                                   const Context& context) const {
  return network_.decode(
      encode(batch, rows, context),
      mask_segments(batch, "encoder_input_tokens", "encoder_segment_ids", rows),
      rows_of(batch, rows, "decoder_input_tokens"),
      mask_segments(batch, "decoder_target_tokens", "decoder_segment_ids", rows),
      spec().decoder.layer.masks_padding ? decoder_token_mask(batch, rows) : Tensor(), context);
}

std::vector<std::pair<std::string, std::string>> EncoderDecoderModel::counted_features(
    const HostArrays& batch) const {
  if (spec().has_experts()) return {};  // T5X's MoE models count loss weights alone
  if (batch.contains("decoder_segment_ids"))
    return {{"encoder", "encoder_segment_ids"}, {"decoder", "decoder_segment_ids"}};
  return {{"encoder_input_tokens", "encoder_input_tokens"},
          {"decoder_target_tokens", "decoder_target_tokens"}};
}

DecoderOnlyModel::DecoderOnlyModel(const TransformerConfig& config, const LossOptions& options,
                                   bool inputs_bidirectional_attention)
    : BaseModel(options, spec_of(config, inputs_bidirectional_attention)),
      network_(Scope(parameters_), config) {
  set_compute_dtype(config.dtype);
}

Tensor DecoderOnlyModel::hidden(const HostArrays& batch, Rows rows, const Context& context) const {
  Tensor prefix;
  if (spec().inputs_bidirectional_attention && batch.contains("decoder_causal_attention"))
    prefix = rows_of(batch, rows, "decoder_causal_attention");
  return network_.decode(
      rows_of(batch, rows, "decoder_input_tokens"),
      mask_segments(batch, "decoder_target_tokens", "decoder_segment_ids", rows), prefix,
      spec().decoder.layer.masks_padding ? decoder_token_mask(batch, rows) : Tensor(), context);
}

std::vector<std::pair<std::string, std::string>> DecoderOnlyModel::counted_features(
    const HostArrays& batch) const {
  if (spec().decoder.has_experts()) return {};  // likewise
  if (batch.contains("decoder_segment_ids")) return {{"decoder", "decoder_segment_ids"}};
  return {{"decoder_target_tokens", "decoder_target_tokens"}};
}

}  // namespace quintet
