#include "kernels/mlp/mlp.h"
#include "models/modules.h"

namespace quintet {
namespace {

using gin::Arguments;
using gin::Param;
using gin::Registry;

const std::string kT5 = "flaxformer.architectures.t5.t5_architecture.";
const std::string kFusedLayer =
    "flaxformer.architectures.t5.parallel_fused_decoder.ParallelFusedDecoderLayer";
const std::string kMoe = "flaxformer.architectures.moe.";
const std::string kComponents = "flaxformer.components.";

// What gin's objects say of their parts.
struct Initial {
  std::string kind;  // "normal" or "variance_scaling"
  double scale = 1;  // variance_scaling: of 1 / fan; normal: stddev
  std::string mode = "fan_in", distribution = "normal";  // of variance_scaling
};
struct DropoutDef {
  double rate = 0;
};
struct Norm {};
struct RelativeBias {
  int64_t num_buckets = 0, max_distance = 0;
  std::optional<int64_t> num_heads = {};
  std::optional<double> scale = {};  // none: not said
};
struct Embedding {
  int64_t num_embeddings = 0, features = 0;
};
struct LogitsDense {
  int64_t features = 0;
  std::optional<double> scale = {};
};
struct AttentionDef {
  int64_t num_heads = 0, head_dim = 0;
  double dropout_rate = 0, scale = 1;
  bool multi_query = false;
  std::optional<double> rotary_max_timescale = {};
  bool rescale_logits = false;
  std::optional<int64_t> out_features = {};
  bool operator==(const AttentionDef&) const = default;
};
struct MlpDef {
  int64_t dim = 0;
  std::vector<std::string> activations;
  double dropout_rate = 0;
  std::optional<double> scale = {};
  std::string distribution = {};  // of its initial matrices; empty: not said
  std::optional<int64_t> out_dim = {};
  bool precomputed = false;  // its kernels are fused with those of attention
};
struct MoeDef {
  MoeConfig config{};
  std::optional<double> scale = {};
};
struct RouterWeights {
  double stddev = 2e-2;
  bool use_bias = true;
};
struct LayerDef {
  AttentionDef attention;
  gin::Value mlp;  // MlpDef or MoeDef
  std::optional<MlpDef> extra_mlp;
  double dropout_rate = 0;
  LayerKind kind{};
  bool has_relative_bias = false;  // a table of its own
  bool cross_attention = false, sows = false;
  bool scanned = false;    // what its checkpoints look like: the stack's scan_axis
  RelativeBias bias = {};  // that, or the stack's
};
struct StackDef {
  int64_t num_layers = 0, num_sparse_layers = 0;
  bool sows = false;
  LayerLayout layout = LayerLayout::mixed;
  LayerDef dense{}, sparse{};
  std::optional<LogitsDense> output_logits = {};
  std::optional<Embedding> embedding = {};  // of this stack alone
  std::optional<int64_t> scan_axis = {};    // of layers in one array; none: an array each
};

/// A parameter that this implementation has with one value alone.
void expect_is(const Arguments& args, const std::string& name, const gin::Value& only) {
  if (args.has(name))
    QT_CHECK(args.value(name) == only, "{}: this network has {} = {} alone, found {}",
             args.where(name).text, name, only.repr(), args.value(name).repr());
}

/// What is bound to `name`, if anything is: an initializer of the kind that the network has there.
std::optional<Initial> initial_of(const Arguments& args, const std::string& name,
                                  const std::string& kind) {
  const gin::Value value = args.value(name);
  if (value.is_none()) return std::nullopt;
  const auto initial = gin::as<Initial>(value, args.where(name));
  QT_CHECK(initial.kind == kind, "{}: this network begins with linen.initializers.{}, found {}",
           args.where(name).text, kind, initial.kind);
  return initial;
}

/// The scale of variance_scaling with this mode and distribution.
std::optional<double> scale_of(const Arguments& args, const std::string& name,
                               const std::string& mode, const std::string& distribution) {
  const auto initial = initial_of(args, name, "variance_scaling");
  if (!initial) return std::nullopt;
  QT_CHECK(initial->mode == mode && initial->distribution == distribution,
           "{}: this network draws from mode = '{}', distribution = '{}', found '{}', '{}'",
           args.where(name).text, mode, distribution, initial->mode, initial->distribution);
  return initial->scale;
}

double dropout_of(const Arguments& args, const std::string& name) {
  const gin::Value value = args.value(name);
  if (value.is_none()) return 0;
  return gin::as<DropoutDef>(gin::as<gin::Callable>(value, args.where(name))(), args.where(name))
      .rate;
}

int64_t size_of(const Arguments& args, const char* name, int64_t least = 1) {
  const auto size = args.get<int64_t>(name);
  QT_CHECK(size >= least, "{}: expected {} or more, found {}", args.where(name).text, least, size);
  return size;
}

double rate_of(const Arguments& args, const char* name) {
  const auto rate = args.get<double>(name);
  QT_CHECK(rate >= 0 && rate < 1, "{}: expected 0 <= rate < 1, found {}", args.where(name).text,
           rate);
  return rate;
}

std::vector<std::string> activations_of(const Arguments& args) {
  const auto names = args.get<std::vector<std::string>>("activations");
  const std::string where = args.where("activations").text;
  QT_CHECK(names.size() == 1 || names.size() == 2, "{}: expected one or two names, found {}", where,
           names.size());
  for (const std::string& name : names) activation_from_name(name, where);
  return names;
}

/// What a factory that is bound to `name` makes; T's default where none is.
template <typename T>
T made(const Arguments& args, const std::string& name) {
  if (args.value(name).is_none()) return {};
  return gin::as<T>(gin::as<gin::Callable>(args.value(name), args.where(name))(), args.where(name));
}

std::vector<Param> optional_params(const std::vector<std::string>& names) {
  std::vector<Param> params;
  for (const std::string& name : names) params.emplace_back(name, gin::Value());
  return params;
}

std::vector<Param> with(std::vector<Param> params, const std::vector<std::string>& more) {
  for (const Param& p : optional_params(more)) params.push_back(p);
  return params;
}

template <typename T>
gin::Value object(T value) {
  return gin::Value::object(std::make_shared<T>(std::move(value)));
}

void add_linen(Registry& r) {
  r.add("flax.linen.initializers.variance_scaling",
        with({{"scale", 1.0}, {"mode", "fan_in"}, {"distribution", "normal"}},
             {"in_axis", "out_axis", "dtype"}),
        [](const Arguments& a) {
          return object(Initial{"variance_scaling", a.get<double>("scale"),
                                a.get<std::string>("mode"), a.get<std::string>("distribution")});
        });
  r.add("flax.linen.initializers.normal", with({{"stddev", 1e-2}}, {"dtype"}),
        [](const Arguments& a) {
          return object(Initial{"normal", a.get<double>("stddev")});
        });
  r.add("flax.linen.Dropout",
        with({{"rate", 0.0}}, {"broadcast_dims", "deterministic", "rng_collection"}),
        [](const Arguments& a) { return object(DropoutDef{rate_of(a, "rate")}); });
}

void add_components(Registry& r) {
  r.add(kComponents + "layer_norm.T5LayerNorm",
        optional_params({"epsilon", "dtype", "scale_init", "center_scale_at_zero", "conv"}),
        [](const Arguments& a) {
          expect_is(a, "center_scale_at_zero", false);
          return object(Norm{});
        });
  r.add(kComponents + "relative_position_biases.RelativePositionBiases",
        with({{"num_heads"}, {"num_buckets"}, {"max_distance"}},
             {"dtype", "embedding_init", "head_axis_name"}),
        [](const Arguments& a) {
          return object(RelativeBias{size_of(a, "num_buckets"), size_of(a, "max_distance"),
                                     a.get<int64_t>("num_heads"),
                                     scale_of(a, "embedding_init", "fan_avg", "uniform")});
        });
  r.add(kComponents + "embedding.Embed",
        with({{"num_embeddings"}, {"features"}},
             {"cast_input_dtype", "dtype", "attend_dtype", "embedding_init", "one_hot", "axes",
              "name", "input_axis_names"}),
        [](const Arguments& a) {
          const auto initial = initial_of(a, "embedding_init", "normal");
          QT_CHECK(!initial || initial->scale == 1,
                   "{}: the stddev of this network's embeddings is 1, found {}",
                   a.where("embedding_init").text, initial->scale);
          return object(Embedding{size_of(a, "num_embeddings"), size_of(a, "features")});
        });
  r.add(kComponents + "dense.DenseGeneral",
        with({{"features"}}, {"use_bias", "dtype", "axis", "kernel_init", "bias_init", "precision",
                              "kernel_axis_names", "reshaped_kernel_axis_name", "reshape_kernel"}),
        [](const Arguments& a) {
          expect_is(a, "use_bias", false);
          return object(LogitsDense{size_of(a, "features"),
                                    scale_of(a, "kernel_init", "fan_in", "truncated_normal")});
        });
}

gin::Value attention_def(const Arguments& a, bool multi_query) {
  expect_is(a, "use_bias", false);
  expect_is(a, "output_projection", true);
  AttentionDef def{size_of(a, "num_heads"), size_of(a, "head_dim"), rate_of(a, "dropout_rate"),
                   scale_of(a, "kernel_init", "fan_in", "normal").value_or(1), multi_query};
  const auto timescale = a.get<double>("rotary_embedding_max_timescale");
  def.rescale_logits = a.get_or<bool>("rescale_logits", false);
  if (!a.value("out_features").is_none()) def.out_features = size_of(a, "out_features");
  if (a.get_or<bool>("use_rotary_embedding", false)) {
    def.rotary_max_timescale = timescale;
    QT_CHECK(def.head_dim % 2 == 0 && *def.rotary_max_timescale > 0,
             "{}: halves of a head are turned; expected an even head_dim and a positive "
             "rotary_embedding_max_timescale, found {} and {}",
             a.where("use_rotary_embedding").text, def.head_dim, *def.rotary_max_timescale);
  }
  return object(def);
}

void add_attention(Registry& r) {
  const std::string module = kComponents + "attention.dense_attention.";
  const std::vector<Param> common =
      with({{"num_heads"},
            {"head_dim"},
            {"dropout_rate", 0.0},
            {"kernel_init", nullptr},
            {"rotary_embedding_max_timescale", 1e4}},
           {"dtype", "bias_init", "use_bias", "broadcast_dropout", "qkv_features", "out_features",
            "precision", "q_conv", "k_conv", "v_conv", "float32_logits", "use_rotary_embedding",
            "rescale_logits", "split_head_kernel"});
  r.add(module + "MultiHeadDotProductAttention",
        with(common, {"output_projection", "kernels_to_fuse"}),
        [](const Arguments& a) { return attention_def(a, false); });
  r.add(module + "MultiQueryDotProductAttention", common,
        [](const Arguments& a) { return attention_def(a, true); });
}

void add_mlp(Registry& r) {
  r.add(kComponents + "dense.MlpBlock",
        with({{"use_bias"},
              {"intermediate_dim", 2048},
              {"activations", gin::List{"relu"}},
              {"kernel_init", nullptr},
              {"intermediate_dropout_rate", 0.1},
              {"final_dropout_rate", 0.1},
              {"precomputed_intermediates", false}},
             {"bias_init", "dtype", "wi_fused_kernel_init", "input_axis_name",
              "activations_axis_name", "intermediate_axis_name", "output_axis_name",
              "data_sharding_constraints", "activation_partitioning_dims", "out_dim", "precision",
              "fuse_kernels", "intermediate_conv", "use_aqt"}),
        [](const Arguments& a) {
          expect_is(a, "use_bias", false);
          expect_is(a, "fuse_kernels", false);
          const bool precomputed = a.get<bool>("precomputed_intermediates");
          QT_CHECK(precomputed || a.get<double>("final_dropout_rate") == 0,
                   "{}: this network drops nothing there; bind 0",
                   a.where("final_dropout_rate").text);
          MlpDef mlp{size_of(a, "intermediate_dim"), activations_of(a),
                     rate_of(a, "intermediate_dropout_rate")};
          mlp.precomputed = precomputed;
          if (!a.value("out_dim").is_none()) mlp.out_dim = size_of(a, "out_dim");
          if (const auto initial = initial_of(a, "kernel_init", "variance_scaling")) {
            mlp.distribution = initial->distribution;
            mlp.scale = scale_of(a, "kernel_init", "fan_in", mlp.distribution);
          }
          return object(mlp);
        });
}

gin::Value router(const Arguments& a, Router kind) {
  const auto weights = a.get<RouterWeights>("router_weights");
  RouterConfig c{.kind = kind,
                 .ignore_padding_tokens = a.get<bool>("ignore_padding_tokens"),
                 .jitter_noise = rate_of(a, "jitter_noise"),
                 .weights_stddev = weights.stddev,
                 .use_bias = weights.use_bias};
  if (kind != Router::experts_choose) {
    c.num_selected_experts = size_of(a, "num_selected_experts");
    c.batch_prioritized_routing = a.get<bool>("batch_prioritized_routing");
  }
  return object(c);
}

/// Experts' matrices are drawn from another distribution than those of other MLPs.
void check_distribution(const MlpDef& mlp, const std::string& wanted, const gin::Where& where) {
  QT_CHECK(mlp.distribution.empty() || mlp.distribution == wanted,
           "{}: the distribution of these matrices' kernel_init is '{}' here, found '{}'",
           where.text, wanted, mlp.distribution);
}

gin::Value moe_layer(const Arguments& a) {
  const auto expert = a.get<MlpDef>("expert");
  const auto partitions = a.get<std::optional<int64_t>>("num_expert_partitions");
  MoeConfig c{.num_experts = size_of(a, "num_experts"),
              .max_group_size = size_of(a, "max_group_size"),
              .train_capacity_factor = a.get<double>("train_capacity_factor"),
              .eval_capacity_factor = a.get<double>("eval_capacity_factor"),
              .min_expert_capacity = a.get<int64_t>("min_expert_capacity"),
              .strict_group_size = a.get<bool>("strict_group_size"),
              .dropless = a.get<bool>("dropless"),
              .expert_capacity = a.get<int64_t>("expert_capacity"),
              .mlp_dim = expert.dim,
              .activations = expert.activations,
              .dropout_rate = expert.dropout_rate,
              .router = a.get<RouterConfig>("router")};
  QT_CHECK(!partitions || *partitions <= c.num_experts,
           "{}: more partitions ({}) than experts ({})", a.where("num_expert_partitions").text,
           partitions.value_or(0), c.num_experts);
  check_distribution(expert, "normal", a.where("expert"));
  return object(MoeDef{c, expert.scale});
}

void add_moe(Registry& r) {
  for (const auto& [name, layout] : {std::pair<const char*, const char*>{"BOTTOM", "bottom"},
                                     {"MIDDLE", "middle"},
                                     {"MIXED", "mixed"},
                                     {"TOP", "top"}})
    r.add_constant(kMoe + "moe_enums.LayerLayout." + name, layout);
  r.add(kMoe + "routing.RouterWeights",
        optional_params({"use_bias", "dtype", "kernel_init", "bias_init", "precision", "axis",
                         "kernel_axis_names", "reshape_kernel"}),
        [](const Arguments& a) {
          const bool use_bias = !a.has("use_bias") || a.get<bool>("use_bias");
          QT_CHECK(!use_bias || !a.has("bias_init") || a.value("bias_init").is_none(),
                   "{}: biases of routers begin at 0 here; leave it out",
                   a.where("bias_init").text);
          return object(RouterWeights{
              initial_of(a, "kernel_init", "normal").value_or(Initial{"", 2e-2}).scale, use_bias});
        });
  const std::vector<Param> common = {
      {"router_weights"}, {"jitter_noise"}, {"dtype"}, {"ignore_padding_tokens"}};
  std::vector<Param> choosing = common;
  choosing.emplace_back("num_selected_experts");
  choosing.emplace_back("batch_prioritized_routing");
  r.add(kMoe + "routing.TokensChooseMaskedRouter", choosing,
        [](const Arguments& a) { return router(a, Router::tokens_choose); });
  r.add(kMoe + "routing.TokensChooseScatterRouter", choosing,
        [](const Arguments& a) { return router(a, Router::scatter); });
  r.add(kMoe + "routing.ExpertsChooseMaskedRouter", common,
        [](const Arguments& a) { return router(a, Router::experts_choose); });
  r.add(kMoe + "moe_layers.MoeLayer",
        with({{"num_experts"},
              {"max_group_size"},
              {"train_capacity_factor"},
              {"eval_capacity_factor"},
              {"expert"},
              {"router"},
              {"num_expert_partitions", nullptr},
              {"num_model_partitions", nullptr},
              {"min_expert_capacity", 4},
              {"strict_group_size", false},
              {"dropless", false},
              {"expert_capacity", 0}},
             {"dropout_rate", "dtype", "split_params", "precision", "input_hidden_dims_axes",
              "output_hidden_dims_axes"}),
        moe_layer);
}

void take_more(LayerDef& def, const Arguments& a) {
  def.sows = a.get_or<bool>("sow_intermediates", false);
  def.scanned = a.get_or<bool>("scanned", false);
  def.has_relative_bias = !a.value("relative_position_bias_factory").is_none();
  def.bias = made<RelativeBias>(a, "relative_position_bias_factory");
}

gin::Value fused_layer(const Arguments& a) {
  LayerDef def{.attention = a.get<AttentionDef>("self_attention"),
               .mlp = a.value("mlp"),
               .extra_mlp = {},
               .dropout_rate = dropout_of(a, "dropout_factory"),
               .kind = {.form = LayerForm::fused}};
  const auto mlp = a.get<MlpDef>("mlp");
  QT_CHECK(
      def.attention.multi_query && mlp.precomputed && def.attention.out_features,
      "{}: its kernels are those of a MultiQueryDotProductAttention with out_features and of a "
      "MlpBlock with precomputed_intermediates = True; bind these",
      a.where("self_attention").text);
  QT_CHECK(def.attention.num_heads > 0 && mlp.dim % def.attention.num_heads == 0,
           "{}: the {} heads of attention do not divide the {} columns of the MLP",
           a.where("mlp").text, def.attention.num_heads, mlp.dim);
  take_more(def, a);
  return object(def);
}

gin::Value layer(const Arguments& a, const std::string& attention) {
  LayerDef def{.attention = a.get<AttentionDef>(attention),
               .mlp = a.value("mlp"),
               .extra_mlp = {},
               .dropout_rate = dropout_of(a, "dropout_factory")};
  QT_CHECK(!def.attention.rescale_logits,
           "{}: rescale_logits is parallel_fused_decoder.ParallelFusedDecoderLayer's alone here; "
           "bind False",
           a.where(attention).text);
  if (const auto mlp = def.mlp.object_as<MlpDef>()) {
    check_distribution(*mlp, "truncated_normal", a.where("mlp"));
    QT_CHECK(
        !mlp->precomputed,
        "{}: precomputed_intermediates are parallel_fused_decoder.ParallelFusedDecoderLayer's; "
        "bind False",
        a.where("mlp").text);
  } else {
    gin::as<MoeDef>(def.mlp, a.where("mlp"));
  }
  def.cross_attention =
      a.has("encoder_decoder_attention") && !a.value("encoder_decoder_attention").is_none();
  if (def.cross_attention) {
    auto cross = a.get<AttentionDef>("encoder_decoder_attention");
    // flaxformer turns these queries by their positions in training, and by 0 one token at a time.
    QT_CHECK(!cross.rotary_max_timescale,
             "{}: attention to an encoder has no rotary embeddings here; bind "
             "SCOPE/{}.use_rotary_embedding = False and @SCOPE/.. to this",
             a.where("encoder_decoder_attention").text,
             cross.multi_query ? "MultiQueryDotProductAttention" : "MultiHeadDotProductAttention");
    cross.rotary_max_timescale = def.attention.rotary_max_timescale;
    QT_CHECK(
        cross == def.attention,
        "{}: this network has one size, dropout rate and scale of all attention; bind what {} has",
        a.where("encoder_decoder_attention").text, a.where(attention).text);
  }
  if (a.has("extra_mlp") && !a.value("extra_mlp").is_none())
    def.extra_mlp = a.get<MlpDef>("extra_mlp");
  def.kind = {
      .form = a.get_or<bool>("parallel", false) ? LayerForm::parallel : LayerForm::sequential,
      .extra_mlp = def.extra_mlp.has_value()};
  take_more(def, a);
  return object(def);
}

void add_layers(Registry& r) {
  const std::vector<std::string> more = {"layer_norm_factory",
                                         "relative_position_bias_factory",
                                         "shared_relative_position_bias",
                                         "activation_partitioning_dims",
                                         "parallel",
                                         "sow_intermediates",
                                         "scanned"};
  r.add(kFusedLayer,
        with({{"self_attention"}, {"mlp"}, {"dropout_factory", nullptr}},
             {"layer_norm_factory", "relative_position_bias_factory",
              "shared_relative_position_bias", "activation_partitioning_dims", "sow_intermediates",
              "scanned", "use_aqt", "weight_params", "act_params", "possibly_use_quantized_vars",
              "is_quant_finetune_mode", "q_wi_fused_kernel_init", "kv_fused_kernel_init",
              "o_wo_fused_kernel_init", "dense_general_cls_factory"}),
        fused_layer);
  for (const auto& [module, sparse] :
       {std::pair<std::string, bool>{kT5, false}, {kMoe + "moe_architecture.Sparse", true}}) {
    std::vector<Param> encoder = with({{"attention"}, {"mlp"}, {"dropout_factory", nullptr}}, more);
    std::vector<Param> decoder = with(
        {{"self_attention"}, {"encoder_decoder_attention"}, {"mlp"}, {"dropout_factory", nullptr}},
        more);
    if (sparse)
      for (std::vector<Param>* params : {&encoder, &decoder})
        params->emplace_back("extra_mlp", gin::Value());
    r.add(module + "EncoderLayer", encoder,
          [](const Arguments& a) { return layer(a, "attention"); });
    r.add(module + "DecoderLayer", decoder,
          [](const Arguments& a) { return layer(a, "self_attention"); });
  }
}

Sows sows_of(const StackDef& def) { return {def.sows, def.dense.sows, def.sparse.sows}; }

/// Of layers that flaxformer scans: what it needs, so that what is bound here runs there.
void take_scan(StackDef& def, const Arguments& a) {
  const bool scans = a.get_or<bool>("scan_layers", false);
  const auto scan_axis = a.get_or<int64_t>("scan_axis", 1);
  // What is scanned of a stack with experts are blocks of layers, which return what layers do.
  const bool of_layers = scans && !a.has("num_sparse_layers");
  QT_CHECK(def.dense.scanned == of_layers && !def.sparse.scanned,
           "{}: layers are scanned = {} there, others are not; bind that",
           a.where("layer_factory").text, of_layers ? "True" : "False");
  if (!scans) return;
  QT_CHECK(of_layers || def.num_sparse_layers > 0,
           "{}: flaxformer scans a stack for experts that has none in blocks of one layer; bind "
           "t5_architecture's stack instead",
           a.where("scan_layers").text);
  QT_CHECK(of_layers || !sows_of(def).any(),
           "{}: scanned blocks of layers with experts leave no intermediates here; bind "
           "sow_intermediates = False of the stack and its layers, or scan_layers = False",
           a.where("scan_layers").text);
  const bool has_blocks = def.num_sparse_layers > 0 && def.num_sparse_layers < def.num_layers;
  QT_CHECK(
      !has_blocks || def.layout == LayerLayout::mixed,
      "{}: blocks of layers with one sparse layer at their end are scanned; bind sparse_layout = "
      "%LayerLayout.MIXED",
      a.where("scan_layers").text);
  QT_CHECK(def.dense.has_relative_bias || def.dense.bias.num_buckets == 0,
           "{}: scanned layers have a table of relative position biases each; bind "
           "relative_position_bias_factory of the layers instead of the stack's",
           a.where("scan_layers").text);
  def.scan_axis = scan_axis;
  QT_CHECK(*def.scan_axis == 0 || *def.scan_axis == 1, "{}: expected 0 or 1, found {}",
           a.where("scan_axis").text, *def.scan_axis);
}

/// T5X's decoding reads it of the architecture, where layers are scanned in the stacks.
void check_scan(const Arguments& a, const StackDef& decoder) {
  QT_CHECK(a.get_or<bool>("scan_layers", false) == decoder.scan_axis.has_value(),
           "{}: expected what is bound of its decoder, {}", a.where("scan_layers").text,
           decoder.scan_axis ? "True" : "False");
}

gin::Value stack(const Arguments& a) {
  StackDef def{.num_layers = size_of(a, "num_layers", 0),
               .num_sparse_layers = a.get_or<int64_t>("num_sparse_layers", 0),
               .sows = a.get_or<bool>("sow_intermediates", false),
               .layout = layer_layout_from_name(a.get_or<std::string>("sparse_layout", "mixed"))};
  QT_CHECK(def.num_sparse_layers >= 0 && def.num_sparse_layers <= def.num_layers,
           "{}: expected 0 to num_layers = {}, found {}", a.where("num_sparse_layers").text,
           def.num_layers, def.num_sparse_layers);
  def.dense = made<LayerDef>(a, "layer_factory");
  if (!def.dense.has_relative_bias)
    def.dense.bias = made<RelativeBias>(a, "shared_relative_position_bias_factory");
  if (def.num_sparse_layers > 0) def.sparse = made<LayerDef>(a, "sparse_layer_factory");
  take_scan(def, a);
  for (const char* name : {"input_dropout_factory", "output_dropout_factory", "dropout_factory"})
    if (a.has(name))
      QT_CHECK(dropout_of(a, name) == def.dense.dropout_rate,
               "{}: this network has one dropout rate after parts, the layers' {}, found {}",
               a.where(name).text, def.dense.dropout_rate, dropout_of(a, name));
  if (a.has("token_embedder_factory") && !a.value("token_embedder_factory").is_none())
    def.embedding = made<Embedding>(a, "token_embedder_factory");
  if (a.has("output_logits_factory") && !a.value("output_logits_factory").is_none())
    def.output_logits = made<LogitsDense>(a, "output_logits_factory");
  return object(def);
}

/// The sizes that a configuration has once for all layers.
void take_layer(LayerConfig& c, const LayerDef& def) {
  const auto mlp = def.mlp.object_as<MlpDef>();
  QT_CHECK(mlp != nullptr,
           "layer_factory: expected a layer whose mlp is a dense.MlpBlock, found {}",
           def.mlp.describe());
  c.num_heads = def.attention.num_heads;
  c.head_dim = def.attention.head_dim;
  c.init_scale = def.attention.scale;
  c.multi_query = def.attention.multi_query;
  c.rotary_max_timescale = def.attention.rotary_max_timescale;
  c.scale_attn_logits = def.attention.rescale_logits;
  for (const std::optional<int64_t>& width : {def.attention.out_features, mlp->out_dim})
    QT_CHECK(
        width.value_or(c.emb_dim) == c.emb_dim,
        "out_features and out_dim: what leaves attention and the MLP is as wide as embeddings, "
        "{}; found {}",
        c.emb_dim, width.value_or(0));
  c.mlp_dim = mlp->dim;
  c.mlp_activations = mlp->activations;
  c.dropout_rate = def.dropout_rate;
  QT_CHECK(
      def.bias.num_buckets > 0 || c.rotary_max_timescale,
      "t5_architecture: networks here have relative position biases or rotary embeddings; bind "
      "a stack's shared_relative_position_bias_factory or its layers' "
      "relative_position_bias_factory to relative_position_biases.RelativePositionBiases, or "
      "use_rotary_embedding = True of its attention");
  c.shared_relative_position_bias = !def.has_relative_bias;
  c.num_buckets = def.bias.num_buckets;
  c.max_distance = def.bias.max_distance;
  for (const std::optional<double>& scale :
       {def.kind.form == LayerForm::fused ? std::optional<double>() : mlp->scale, def.bias.scale})
    QT_CHECK(scale.value_or(c.init_scale) == c.init_scale,
             "initial scales of layers differ: {} of attention, {} of the MLP or the relative "
             "position biases; this network has one",
             c.init_scale, scale.value_or(0));
  QT_CHECK(def.bias.num_heads.value_or(c.num_heads) == c.num_heads,
           "RelativePositionBiases.num_heads: expected the {} heads of attention, found {}",
           c.num_heads, def.bias.num_heads.value_or(0));
  QT_CHECK(
      def.attention.dropout_rate == c.dropout_rate && mlp->dropout_rate == c.dropout_rate,
      "dropout rates of layers differ: {} after parts, {} of attention weights, {} in the MLP; "
      "this network has one (experts may have another)",
      c.dropout_rate, def.attention.dropout_rate, mlp->dropout_rate);
}

/// What a stack has beside its dense layers' sizes, c.
StackConfig stack_config(const StackDef& def, const LayerConfig& c) {
  StackConfig stack{.dense_layers = def.dense.kind,
                    .sparse_layers = def.sparse.kind,
                    .sparse = {.num_sparse_layers = def.num_sparse_layers, .layout = def.layout},
                    .sows = sows_of(def)};
  for (const LayerDef* layer : {&def.dense, &def.sparse})
    QT_CHECK(!layer->extra_mlp || (layer->extra_mlp->dim == c.mlp_dim &&
                                   layer->extra_mlp->activations == c.mlp_activations),
             "extra_mlp: expected the dense layers' MLP of {} columns, found one of {}", c.mlp_dim,
             layer->extra_mlp->dim);
  if (def.num_sparse_layers == 0) return stack;
  const auto moe = def.sparse.mlp.object_as<MoeDef>();
  QT_CHECK(moe != nullptr,
           "sparse_layer_factory: expected a layer whose mlp is a moe_layers.MoeLayer, found {}",
           def.sparse.mlp.describe());
  stack.sparse.moe = moe->config;
  QT_CHECK(moe->scale.value_or(c.init_scale) == c.init_scale,
           "initial scales differ: {} of attention, {} of experts; this network has one",
           c.init_scale, moe->scale.value_or(0));
  QT_CHECK(def.sparse.attention == def.dense.attention,
           "sparse_layer_factory: expected the attention of layer_factory's layers");
  QT_CHECK(def.dense.kind.form != LayerForm::fused,
           "layer_factory: expected layers that are not fused in a stack with experts");
  QT_CHECK(def.sparse.has_relative_bias == def.dense.has_relative_bias,
           "relative_position_bias_factory: bind it for layer_factory and sparse_layer_factory, or "
           "for neither");
  return stack;
}

/// One table for both stacks, or one for each of the same size.
Embedding embedding_of(const Arguments& a, const StackDef& encoder, const StackDef& decoder) {
  const bool shared = !a.value("shared_token_embedder_factory").is_none();
  QT_CHECK(encoder.embedding.has_value() != shared && decoder.embedding.has_value() != shared,
           "{}: bind it, or None and the token_embedder_factory of both stacks",
           a.where("shared_token_embedder_factory").text);
  if (shared) return made<Embedding>(a, "shared_token_embedder_factory");
  QT_CHECK(
      encoder.embedding->num_embeddings == decoder.embedding->num_embeddings &&
          encoder.embedding->features == decoder.embedding->features,
      "token_embedder_factory: encoder and decoder have tables of one size here, found {} x {} "
      "and {} x {}",
      encoder.embedding->num_embeddings, encoder.embedding->features,
      decoder.embedding->num_embeddings, decoder.embedding->features);
  return *encoder.embedding;
}

/// What every architecture has of its decoder: T5Config or TransformerConfig.
template <typename Config>
void take_decoder(Config& c, const Arguments& a, const StackDef& decoder,
                  const Embedding& embedding) {
  c.vocab_size = embedding.num_embeddings;
  c.emb_dim = embedding.features;
  c.dtype = a.get<std::string>("dtype");
  c.logits_via_embedding = !decoder.output_logits;
  c.masks_padding = true;
  take_layer(c, decoder.dense);
  if (decoder.scan_axis)
    c.scalable = ScalableLayers{.param_scan_axis = *decoder.scan_axis, .heads_apart = false};
  if (!decoder.output_logits) return;
  const LogitsDense& logits = *decoder.output_logits;
  QT_CHECK(logits.features == c.vocab_size && logits.scale.value_or(c.init_scale) == c.init_scale,
           "output_logits_factory: expected {} features and scale {}, as elsewhere in this "
           "network, found {} and {}",
           c.vocab_size, c.init_scale, logits.features, logits.scale.value_or(c.init_scale));
}

DecoderOnlyModule decoder_only(const Arguments& a) {
  const auto decoder = made<StackDef>(a, "decoder_factory");
  check_scan(a, decoder);
  QT_CHECK(!decoder.dense.cross_attention && !decoder.sparse.cross_attention,
           "{}: nothing is encoded here; bind encoder_decoder_attention = None of its layers",
           a.where("decoder_factory").text);
  QT_CHECK(decoder.embedding.has_value(), "{}: bind its token_embedder_factory",
           a.where("decoder_factory").text);
  TransformerConfig c;
  c.num_layers = decoder.num_layers;
  take_decoder(c, a, decoder, *decoder.embedding);
  c.decoder = stack_config(decoder, c);
  return {c};
}

T5Module encoder_decoder(const Arguments& a) {
  const auto encoder = made<StackDef>(a, "encoder_factory");
  const auto decoder = made<StackDef>(a, "decoder_factory");
  check_scan(a, decoder);
  QT_CHECK(encoder.scan_axis == decoder.scan_axis,
           "{}: scan_layers and scan_axis of encoder and decoder must be the same",
           a.where("encoder_factory").text);
  T5Config c;
  c.separate_embeddings = encoder.embedding.has_value();
  c.num_encoder_layers = encoder.num_layers;
  c.num_decoder_layers = decoder.num_layers;
  take_decoder(c, a, decoder, embedding_of(a, encoder, decoder));
  QT_CHECK(decoder.dense.cross_attention,
           "{}: its layers attend to an encoder; bind their encoder_decoder_attention",
           a.where("decoder_factory").text);
  QT_CHECK(encoder.dense.kind.form != LayerForm::fused,
           "{}: parallel_fused_decoder's layers are a decoder's", a.where("encoder_factory").text);
  LayerConfig other = c;
  take_layer(other, encoder.dense);
  QT_CHECK(
      other.init_scale == c.init_scale,
      "t5_architecture.EncoderDecoder: initial scales of encoder and decoder differ: {} and {}; "
      "this network has one",
      other.init_scale, c.init_scale);
  QT_CHECK(other == static_cast<const LayerConfig&>(c),
           "t5_architecture.EncoderDecoder: encoder and decoder layers must have the same sizes, "
           "rates and relative position biases of the same size, both of the stack or both of each "
           "layer");
  c.encoder = stack_config(encoder, c);
  c.decoder = stack_config(decoder, c);
  return {c};
}

void add_stacks(Registry& r) {
  const std::vector<Param> common = with(
      {{"num_layers"}, {"layer_factory"}},
      {"layer_norm_factory", "position_embedder_factory", "shared_relative_position_bias_factory",
       "dtype", "scan_layers", "scan_axis", "layer_remat", "sow_intermediates", "capture_gradients",
       "token_embedder_factory", "shared_token_embedder", "spmd_annotations"});
  const std::vector<Param> encoder =
      with(common, {"input_dropout_factory", "output_dropout_factory"});
  const std::vector<Param> decoder = with(common, {"dropout_factory", "output_logits_factory"});
  for (const auto& [which, params] : {std::pair{"Encoder", encoder}, {"Decoder", decoder}}) {
    r.add(kT5 + which, params, stack);
    std::vector<Param> sparse = with(params, {"sparse_layer_factory"});
    sparse.emplace_back("num_sparse_layers");
    sparse.emplace_back("sparse_layout", "mixed");
    r.add(kMoe + "moe_architecture.Sparse" + which, sparse, stack);
  }
}

void add_architectures(Registry& r) {
  r.add(kT5 + "EncoderDecoder",
        with({{"encoder_factory"},
              {"decoder_factory"},
              {"shared_token_embedder_factory"},
              {"dtype", "float32"}},
             {"scan_layers", "spmd_annotations"}),
        [](const Arguments& a) { return object(encoder_decoder(a)); });
  r.add(kT5 + "DecoderOnly", with({{"decoder_factory"}, {"dtype", "float32"}}, {"scan_layers"}),
        [](const Arguments& a) { return object(decoder_only(a)); });
}

}  // namespace

void register_flaxformer(Registry& registry) {
  add_linen(registry);
  add_components(registry);
  add_attention(registry);
  add_mlp(registry);
  add_moe(registry);
  add_layers(registry);
  add_stacks(registry);
  add_architectures(registry);
}

}  // namespace quintet
