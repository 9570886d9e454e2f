// optax and t5x.optimizers: the arguments of each transformation are the members of its options, with their defaults.

#include "runtime/configurables/optax_configurables.h"

#include "runtime/gin/registry/registry.h"
#include "runtime/optim/checked_rate.h"
#include "runtime/optim/optax/amos.h"
#include "runtime/optim/optax/moments.h"
#include "runtime/optim/optax/noise.h"

namespace quintet {

namespace gin {

/// A number, or a schedule.
ScalarOrSchedule Convert<ScalarOrSchedule>::from(const Value& value, const Where& where) {
  if (value.get_if<double>() != nullptr || value.get_if<int64_t>() != nullptr)
    return checked_rate(as<double>(value, where), where.text);
  const auto schedule = as<Schedule>(value, where);
  if (schedule == nullptr) conversion_error(where, expected(), value);
  return schedule;
}

DType Convert<DType>::from(const Value& value, const Where& where) {
  const std::string* name = value.get_if<std::string>();
  if (value.is_none() || (name != nullptr && *name == "float32")) return DType::f32;
  if (name == nullptr || *name != "bfloat16") conversion_error(where, expected(), value);
  return DType::bf16;
}

Mask Convert<Mask>::from(const Value& value, const Where& where) {
  Mask mask{.where = where.text};
  if (value.is_none()) return mask;
  if (const bool* all = value.get_if<bool>()) {
    if (*all) return mask;
    mask.selects = [](const std::string&) { return false; };
  } else if (value.get_if<std::string>() != nullptr) {
    mask.selects = matching(as<std::string>(value, where));
  } else {
    mask.selects = [rules = as<HParamMap<bool>>(value, where)](const std::string& path) {
      return rules.at(path);
    };
  }
  return mask;
}

}  // namespace gin

namespace {

using gin::Arguments;
using gin::Registry;
using gin::StructParams;
using gin::Value;

/// A configurable whose arguments are members of T, and which gives what `make` makes of it.
template <typename T, typename Make>
StructParams<T> add_made(Registry& r, const std::string& name, Make make) {
  auto setters =
      std::make_shared<std::vector<std::pair<std::string, typename StructParams<T>::Setter>>>();
  gin::Configurable& c = r.add(name, {}, [setters, make](const Arguments& a) -> Value {
    T object{};
    for (const auto& [parameter, set] : *setters)
      if (a.has(parameter)) set(object, a.value(parameter), a.where(parameter));
    return gin::to_value(make(object));
  });
  return {&c, std::move(setters)};
}

template <typename T>
using Make = TransformationPtr (*)(const T&);

template <typename T>
StructParams<T> transformation(Registry& r, const char* name, Make<T> make) {
  return add_made<T>(r, std::string("optax.") + name, make);
}

/// optax.NAME, a transformation, and t5x.optimizers.NAME, the same wrapped as an optimizer.
template <typename T>
class Both {
 public:
  Both(Registry& r, const std::string& name, Make<T> make, const std::string& module = "optax.")
      : transformation_(add_made<T>(r, module + name, make)),
        optimizer_(add_made<T>(r, "t5x.optimizers." + name,
                               [make](const T& o) { return optax_optimizer(make(o)); })) {}
  template <typename M, typename Base>
  Both& required(const std::string& name, M Base::*member) {
    transformation_.required(name, member);
    optimizer_.required(name, member);
    return *this;
  }
  template <typename M, typename Base>
  Both& arg(const std::string& name, M Base::*member) {
    transformation_.arg(name, member);
    optimizer_.arg(name, member);
    return *this;
  }

 private:
  StructParams<T> transformation_, optimizer_;
};

struct LionArguments : WithRate<LionOptions> {};
struct AdamArguments : WithRate<AdamOptions> {};
struct AdamWArguments : WithRate<AdamWOptions> {};
struct SgdArguments : WithRate<SgdOptions> {};
struct ChainArguments {
  std::vector<TransformationPtr> transformations;
};

void add_optimizers_of_old(Registry& r) {
  using A = AdamArguments;
  Both<A>(r, "adam", [](const A& o) { return adam(o.learning_rate, o); })
      .required("learning_rate", &A::learning_rate)
      .arg("b1", &A::b1)
      .arg("b2", &A::b2)
      .arg("eps", &A::eps)
      .arg("eps_root", &A::eps_root)
      .arg("mu_dtype", &A::mu_dtype)
      .arg("nesterov", &A::nesterov);
  using W = AdamWArguments;
  Both<W>(r, "adamw", [](const W& o) { return adamw(o.learning_rate, o); })
      .required("learning_rate", &W::learning_rate)
      .arg("b1", &W::b1)
      .arg("b2", &W::b2)
      .arg("eps", &W::eps)
      .arg("eps_root", &W::eps_root)
      .arg("mu_dtype", &W::mu_dtype)
      .arg("weight_decay", &W::weight_decay)
      .arg("mask", &W::mask)
      .arg("nesterov", &W::nesterov);
  using L = LionArguments;
  Both<L>(r, "lion", [](const L& o) { return lion(o.learning_rate, o); })
      .required("learning_rate", &L::learning_rate)
      .arg("b1", &L::b1)
      .arg("b2", &L::b2)
      .arg("mu_dtype", &L::mu_dtype)
      .arg("weight_decay", &L::weight_decay)
      .arg("mask", &L::mask);
  using S = SgdArguments;
  Both<S>(r, "sgd", [](const S& o) { return sgd(o.learning_rate, o); })
      .required("learning_rate", &S::learning_rate)
      .arg("momentum", &S::momentum)
      .arg("nesterov", &S::nesterov)
      .arg("accumulator_dtype", &S::accumulator_dtype);
  using C = ChainArguments;
  Both<C>(r, "chain", [](const C& o) {
    return chain(o.transformations);
  }).required("transformations", &C::transformations);
}

void add_optimizers(Registry& r) {
  using B = WithRate<BeliefOptions>;
  Both<B>(r, "adabelief", adabelief)
      .required("learning_rate", &B::learning_rate)
      .arg("b1", &B::b1)
      .arg("b2", &B::b2)
      .arg("eps", &B::eps)
      .arg("eps_root", &B::eps_root);
  using G = WithRate<RssOptions>;
  Both<G>(r, "adagrad", adagrad)
      .required("learning_rate", &G::learning_rate)
      .arg("initial_accumulator_value", &G::initial_accumulator_value)
      .arg("eps", &G::eps);
  using P = RmspropOptions;
  Both<P>(r, "rmsprop", rmsprop)
      .required("learning_rate", &P::learning_rate)
      .arg("decay", &P::decay)
      .arg("eps", &P::eps)
      .arg("initial_scale", &P::initial_scale)
      .arg("centered", &P::centered)
      .arg("momentum", &P::momentum)
      .arg("nesterov", &P::nesterov);
  using Y = WithRate<YogiOptions>;
  Both<Y>(r, "yogi", yogi)
      .required("learning_rate", &Y::learning_rate)
      .arg("b1", &Y::b1)
      .arg("b2", &Y::b2)
      .arg("eps", &Y::eps);
  using R = WithRate<RadamOptions>;
  Both<R>(r, "radam", radam)
      .required("learning_rate", &R::learning_rate)
      .arg("b1", &R::b1)
      .arg("b2", &R::b2)
      .arg("eps", &R::eps)
      .arg("eps_root", &R::eps_root)
      .arg("threshold", &R::threshold)
      .arg("nesterov", &R::nesterov);
  using N = NoisySgdOptions;
  Both<N>(r, "noisy_sgd", noisy_sgd)
      .required("learning_rate", &N::learning_rate)
      .arg("eta", &N::eta)
      .arg("gamma", &N::gamma)
      .arg("seed", &N::seed);
  using D = DpsgdOptions;
  Both<D>(r, "dpsgd", dpsgd, "optax.contrib.")
      .required("learning_rate", &D::learning_rate)
      .required("l2_norm_clip", &D::l2_norm_clip)
      .required("noise_multiplier", &D::noise_multiplier)
      .required("seed", &D::seed)
      .arg("momentum", &D::momentum)
      .arg("nesterov", &D::nesterov);
}

void add_layerwise_optimizers(Registry& r) {
  using L = WithRate<LambOptions>;
  Both<L>(r, "lamb", lamb)
      .required("learning_rate", &L::learning_rate)
      .arg("b1", &L::b1)
      .arg("b2", &L::b2)
      .arg("eps", &L::eps)
      .arg("eps_root", &L::eps_root)
      .arg("weight_decay", &L::weight_decay)
      .arg("mask", &L::mask);
  using S = LarsOptions;
  Both<S>(r, "lars", lars)
      .required("learning_rate", &S::learning_rate)
      .arg("weight_decay", &S::weight_decay)
      .arg("weight_decay_mask", &S::weight_decay_mask)
      .arg("trust_coefficient", &S::trust_coefficient)
      .arg("eps", &S::eps)
      .arg("trust_ratio_mask", &S::trust_ratio_mask)
      .arg("momentum", &S::momentum)
      .arg("nesterov", &S::nesterov);
  using F = FromageOptions;
  Both<F>(r, "fromage", fromage)
      .required("learning_rate", &F::learning_rate)
      .arg("min_norm", &F::min_norm);
  using A = AmosOptimizerOptions;
  Both<A>(r, "amos", amos, "jestimator.amos.")
      .required("learning_rate", &A::learning_rate)
      .required("eta_fn", &A::eta_fn)
      .arg("shape_fn", &A::shape_fn)
      .arg("beta", &A::beta)
      .arg("momentum", &A::momentum)
      .arg("clip_value", &A::clip_value)
      .arg("extra_l2", &A::extra_l2)
      .arg("d_coef", &A::d_coef)
      .arg("c_coef", &A::c_coef)
      .arg("epsilon", &A::epsilon);
}

void add_elementary(Registry& r) {
  r.add_function("optax.identity", identity, {});
  r.add_function("optax.set_to_zero", set_to_zero, {});
  r.add_function("optax.zero_nans", zero_nans, {});
  r.add_function("optax.clip", clip, {{"max_delta"}});
  r.add_function("optax.clip_by_global_norm", clip_by_global_norm, {{"max_norm"}});
  r.add_function("optax.add_decayed_weights", add_decayed_weights,
                 {{"weight_decay", 0.0}, {"mask", nullptr}});
  r.add_function("optax.scale", scale, {{"step_size"}});
  r.add_function("optax.scale_by_lion", scale_by_lion,
                 {{"b1", 0.9}, {"b2", 0.99}, {"mu_dtype", nullptr}});
  r.add_function("optax.trace", trace,
                 {{"decay"}, {"nesterov", false}, {"accumulator_dtype", nullptr}});
  r.add_function("optax.scale_by_learning_rate", scale_by_learning_rate,
                 {{"learning_rate"}, {"flip_sign", true}});
  r.add_function("optax.scale_by_schedule",
                 [](const Schedule& rate) { return scale_by_learning_rate(rate, false); },
                 {{"step_size_fn"}});
}

void add_moments(Registry& r) {
  transformation<AdamOptions>(r, "scale_by_adam", scale_by_adam)
      .arg("b1", &AdamOptions::b1)
      .arg("b2", &AdamOptions::b2)
      .arg("eps", &AdamOptions::eps)
      .arg("eps_root", &AdamOptions::eps_root)
      .arg("mu_dtype", &AdamOptions::mu_dtype)
      .arg("nesterov", &AdamOptions::nesterov);
  transformation<BeliefOptions>(r, "scale_by_belief", scale_by_belief)
      .arg("b1", &BeliefOptions::b1)
      .arg("b2", &BeliefOptions::b2)
      .arg("eps", &BeliefOptions::eps)
      .arg("eps_root", &BeliefOptions::eps_root);
  transformation<RssOptions>(r, "scale_by_rss", scale_by_rss)
      .arg("initial_accumulator_value", &RssOptions::initial_accumulator_value)
      .arg("eps", &RssOptions::eps);
  for (const bool centered : {false, true})
    transformation<RmsOptions>(r, centered ? "scale_by_stddev" : "scale_by_rms",
                               centered ? scale_by_stddev : scale_by_rms)
        .arg("decay", &RmsOptions::decay)
        .arg("eps", &RmsOptions::eps)
        .arg("initial_scale", &RmsOptions::initial_scale);
  using Y = ScaleByYogiOptions;
  transformation<Y>(r, "scale_by_yogi", scale_by_yogi)
      .arg("b1", &Y::b1)
      .arg("b2", &Y::b2)
      .arg("eps", &Y::eps)
      .arg("eps_root", &Y::eps_root)
      .arg("initial_accumulator_value", &Y::initial_accumulator_value);
  transformation<RadamOptions>(r, "scale_by_radam", scale_by_radam)
      .arg("b1", &RadamOptions::b1)
      .arg("b2", &RadamOptions::b2)
      .arg("eps", &RadamOptions::eps)
      .arg("eps_root", &RadamOptions::eps_root)
      .arg("threshold", &RadamOptions::threshold)
      .arg("nesterov", &RadamOptions::nesterov);
  using X = WithRate<AdamaxOptions>;
  transformation<X>(r, "adamax", adamax)
      .required("learning_rate", &X::learning_rate)
      .arg("b1", &X::b1)
      .arg("b2", &X::b2)
      .arg("eps", &X::eps);
  transformation<AdamaxOptions>(r, "scale_by_adamax", scale_by_adamax)
      .arg("b1", &AdamaxOptions::b1)
      .arg("b2", &AdamaxOptions::b2)
      .arg("eps", &AdamaxOptions::eps);
  transformation<EmaOptions>(r, "ema", ema)
      .required("decay", &EmaOptions::decay)
      .arg("debias", &EmaOptions::debias)
      .arg("accumulator_dtype", &EmaOptions::accumulator_dtype);
  transformation<TrustRatioOptions>(r, "scale_by_trust_ratio", scale_by_trust_ratio)
      .arg("min_norm", &TrustRatioOptions::min_norm)
      .arg("trust_coefficient", &TrustRatioOptions::trust_coefficient)
      .arg("eps", &TrustRatioOptions::eps);
}

void add_noises(Registry& r) {
  transformation<NoiseOptions>(r, "add_noise", add_noise)
      .required("eta", &NoiseOptions::eta)
      .required("gamma", &NoiseOptions::gamma)
      .required("seed", &NoiseOptions::seed);
  using D = PrivateAggregateOptions;
  transformation<D>(r, "contrib.differentially_private_aggregate", differentially_private_aggregate)
      .required("l2_norm_clip", &D::l2_norm_clip)
      .required("noise_multiplier", &D::noise_multiplier)
      .required("seed", &D::seed);
}

void add_wrappers(Registry& r) {
  r.add_function("optax.masked", masked, {{"inner"}, {"mask"}});
  r.add("optax.multi_transform", {{"transforms"}, {"param_labels"}}, [](const Arguments& a) {
    Labels labels{a.get<std::vector<std::pair<std::string, std::string>>>("param_labels"),
                  a.where("param_labels").text};
    return gin::to_value(
        multi_transform(a.get<std::vector<std::pair<std::string, TransformationPtr>>>("transforms"),
                        std::move(labels)));
  });
  r.add(
      "optax.MultiSteps",
      {{"opt"}, {"every_k_schedule"}, {"use_grad_mean", true}, {"should_skip_update_fn", nullptr}},
      [](const Arguments& a) {
        QT_CHECK(a.value("should_skip_update_fn").is_none(),
                 "{}: only None is supported; optax.apply_if_finite leaves out gradients that "
                 "are not finite",
                 a.where("should_skip_update_fn").text);
        MultiStepsOptions o{.use_grad_mean = a.get<bool>("use_grad_mean")};
        if (a.value("every_k_schedule").get_if<int64_t>() != nullptr)
          o.every_k = a.get<int64_t>("every_k_schedule");
        else
          o.every_k = a.get<Schedule>("every_k_schedule");
        return gin::to_value(multi_steps(a.get<TransformationPtr>("opt"), o));
      });
  r.add_function("optax.apply_if_finite", apply_if_finite, {{"inner"}, {"max_consecutive_errors"}});
  r.add_function("t5x.optimizers.OptaxWrapper", optax_optimizer, {{"optax_optimizer"}});
}

}  // namespace

void register_optax(Registry& registry) {
  add_optimizers_of_old(registry);
  add_optimizers(registry);
  add_layerwise_optimizers(registry);
  add_elementary(registry);
  add_moments(registry);
  add_noises(registry);
  add_wrappers(registry);
  register_amos_helper(registry);
  register_inject_hyperparams(registry);
}

}  // namespace quintet
