// The `quintet` command with a model, a loss and an optimizer of its own, as gin files name them (docs/extend.md).

#include "apps/cli/program.h"

#include <cmath>

#include "models/configurables.h"
#include "models/features.h"
#include "models/modules.h"

namespace mine {
using namespace quintet;

/// Loss weights in which the first `count` tokens of a target weigh `weight` times as much.
struct FirstTokensLoss {
  int64_t count = 1;
  double weight = 1;

  HostArray weights(const HostArrays& batch, const LossNormalizingFactor& factor) const {
    LossWeights loss = loss_weights(batch, factor);
    const int64_t length = loss.weights.shape[1];
    const std::span<float> all = loss.weights.as<float>();
    for (size_t i = 0; i < all.size(); ++i) {
      const bool first = static_cast<int64_t>(i) % length < count;
      all[i] *= static_cast<float>((first ? weight : 1) / loss.factor);
    }
    return std::move(loss.weights);
  }
};

/// Adds a loss of its own to a model.
template <class Model>
class WithLoss : public Model {
 public:
  template <class... Args>
  explicit WithLoss(FirstTokensLoss loss, const Args&... args) : Model(args...), loss_(loss) {}

  bool has_own_loss() const override { return true; }

 protected:
  LossOutput loss_of(const TargetOutput& output, const HostArrays& batch, Rows rows,
                     bool) const override {
    const Projection& logits = output.projection;
    const auto weights = [this](const HostArrays& from) {
      return loss_.weights(from, this->loss_options().loss_normalizing_factor);
    };
    const auto result = ops::cross_entropy(
        output.hidden, logits.kernel, rows_of(batch, rows, "decoder_target_tokens"),
        rows_of(batch, rows, weights), {.logit_scale = logits.logit_scale, .tied = logits.tied});
    return {result.loss,
            {result.loss, result.correct},
            [this, rows](const HostArrays& from, std::span<const HostArray> values) {
              return this->base_metrics(
                  from, rows,
                  {.loss = values[0].as<float>()[0], .correct = values[1].as<float>()[0]});
            }};
  }

 private:
  FirstTokensLoss loss_;
};

struct Sizes : LayerConfig {
  int64_t vocab_size = 0;
};

ModelSpec spec_of(const Sizes& sizes) {
  return {.vocab_size = sizes.vocab_size,
          .logits_via_embedding = true,
          .own_network = true,
          .encoder = StackSpec{.layer = sizes, .is_encoder = true},
          .decoder = {.layer = sizes, .num_layers = 1, .cross_attention = true}};
}

/// No encoder: the targets so far ask the embeddings of the inputs.
class LookupModel : public BaseModel {
 public:
  LookupModel(const Sizes& sizes, const LossOptions& options)
      : BaseModel(options, mine::spec_of(sizes)),
        embedding_((Scope(parameters_) / "token_embedder")
                       .param("embedding",
                              {{axis::kVocab, sizes.vocab_size}, {axis::kEmbed, sizes.emb_dim}},
                              t5_init::embedding())),
        norm_(Scope(parameters_) / "norm", sizes),
        attention_(Scope(parameters_) / "attention", sizes),
        mlp_norm_(Scope(parameters_) / "mlp_norm", sizes),
        mlp_(Scope(parameters_) / "mlp", sizes) {}

 protected:
  Tensor hidden(const HostArrays& batch, Rows rows, const Context& context) const override {
    const auto tokens = [&](const char* name) {
      return ops::embed(rows_of(batch, rows, name), embedding_);
    };
    const ops::AttentionMask mask{
        .query_segments =
            mask_segments(batch, "decoder_target_tokens", "decoder_segment_ids", rows),
        .key_segments = mask_segments(batch, "encoder_input_tokens", "encoder_segment_ids", rows)};
    const Tensor x = tokens("decoder_input_tokens");  // [batch, length, embed]
    const Tensor found =
        attention_({norm_(x)}, tokens("encoder_input_tokens"), mask, {}, true, context);
    return mlp_({mlp_norm_(ops::add(x, found))}, context);
  }
  Projection projection() const override {
    return {embedding_, true, 1 / std::sqrt(static_cast<double>(spec().emb_dim()))};
  }
  std::vector<std::pair<std::string, std::string>> counted_features(
      const HostArrays&) const override {
    return {{"decoder_target_tokens", "decoder_target_tokens"}};
  }

 private:
  Param embedding_;
  RmsNorm norm_;
  Attention attention_;
  RmsNorm mlp_norm_;
  MlpBlock mlp_;
};

/// p -= learning_rate * sign(gradient); stateless, on the CPU.
class SignSgd : public Optimizer {
 public:
  explicit SignSgd(double learning_rate) : rate_(static_cast<float>(learning_rate)) {}
  void init(std::span<const ParamSlot>) override {}
  void update(const UpdateArgs&, std::span<const ParamSlot> params) override {
    for (const ParamSlot& slot : params) {
      if (slot.grad.absent()) continue;
      float* const p = slot.param.data<float>();
      const float* const g = slot.grad.data<float>();
      for (int64_t i = 0; i < slot.param.elements(); ++i)
        if (g[i] != 0) p[i] -= std::copysign(rate_, g[i]);
    }
  }
  std::vector<StateArray> state() override { return {}; }

 private:
  float rate_;
};

void register_mine(gin::Registry& registry) {
  registry.add_struct<FirstTokensLoss>("mine.FirstTokensLoss")
      .arg("count", &FirstTokensLoss::count)
      .arg("weight", &FirstTokensLoss::weight);
  registry.add_struct<Sizes>("mine.Sizes")
      .required("vocab_size", &Sizes::vocab_size)
      .arg("emb_dim", &Sizes::emb_dim)
      .arg("num_heads", &Sizes::num_heads)
      .arg("head_dim", &Sizes::head_dim)
      .arg("mlp_dim", &Sizes::mlp_dim);
  registry.add(
      "mine.LookupModel", with_shared({{"sizes"}, {"loss"}, {"vocabulary"}}),
      [](const gin::Arguments& args) {
        return gin::Value::object(configured(
            args,
            std::make_shared<WithLoss<LookupModel>>(args.get<FirstTokensLoss>("loss"),
                                                    args.get<Sizes>("sizes"), loss_options(args)),
            "vocabulary", "vocabulary"));
      });
  // T5's own network under that loss: it generates and serves like any other.
  registry.add("mine.T5Model", with_shared({{"module"}, {"loss"}, {"vocabulary"}}),
               [](const gin::Arguments& args) {
                 return gin::Value::object(
                     configured(args,
                                std::make_shared<WithLoss<EncoderDecoderModel>>(
                                    args.get<FirstTokensLoss>("loss"),
                                    args.get<T5Module>("module").config, loss_options(args)),
                                "vocabulary", "vocabulary"));
               });
  add_model_methods(registry, "mine.T5Model");
  registry.add_function(
      "mine.SignSgd",
      [](double learning_rate) -> OptimizerPtr { return std::make_shared<SignSgd>(learning_rate); },
      {{"learning_rate"}});
}

}  // namespace mine

int main(int argc, char** argv) {
  return quintet::run_program(argc, argv, {mine::register_mine, QUINTET_INSTALLED_CONFIGS});
}
