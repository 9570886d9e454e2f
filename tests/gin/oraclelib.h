#pragma once
// The configurables that the fixtures of tests/fixtures/gin refer to (fixtures README, gin/), and
// the encoding of their results: {"call": name, "args": {..}}, {"function": name}, values as in
// runtime/gin/resolved.h.

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/gin/config.h"
#include "runtime/gin/resolved.h"

namespace quintet::testing {

/// Registers module.layer, .optimizer, .rules, .model, .dataset, .sched and .train.
inline void register_oraclelib(gin::Registry& r, const std::string& module) {
  using gin::Param;
  const gin::Value none;
  const auto add = [&](const std::string& name, const std::vector<Param>& params) {
    r.add(module + "." + name, params, [name, params](const gin::Arguments& a) -> gin::Value {
      gin::Dict args;
      for (const Param& p : params) args.items.emplace_back(p.name, a.value(p.name));
      return gin::dict_of({{"call", name}, {"args", args}});
    });
  };
  add("layer", {{"size", 8}, {"act", "relu"}, {"inner", none}});
  add("optimizer", {{"lr", 0.1}, {"rules", none}, {"betas", gin::tuple_of({0.9, 0.999})}});
  add("rules", {});
  add("model", {{"module", none},
                {"opt", none},
                {"z_loss", 0.0},
                {"label_smoothing", 0.0},
                {"norm", none},
                {"fn", none}});
  add("dataset", {{"name", none},
                  {"split", "train"},
                  {"lengths", none},
                  {"batch", none},
                  {"pack", false},
                  {"seed", none},
                  {"use_cached", false},
                  {"module", none}});
  add("sched", {{"factors", "constant"}, {"base", 1.0}, {"warmup", 1000}});
  add("train", {{"model", none},
                {"ds", none},
                {"eval_ds", none},
                {"steps", none},
                {"model_dir", none},
                {"actions", none},
                {"values", none},
                {"sched", none}});
}

/// A result as JSON.
inline nlohmann::json encode_result(const gin::Value& v) {
  if (const gin::Callable* c = v.get_if<gin::Callable>())
    return {{"function", c->name().substr(c->name().rfind('.') + 1)}};
  const gin::Dict* dict = v.get_if<gin::Dict>();
  if (dict != nullptr && dict->items.size() == 2 && dict->find("call") != nullptr &&
      dict->find("args") != nullptr) {
    nlohmann::json args = nlohmann::json::object();
    for (const auto& [k, value] : dict->find("args")->get_if<gin::Dict>()->items)
      args[*k.get_if<std::string>()] = encode_result(value);
    return {{"call", *dict->find("call")->get_if<std::string>()}, {"args", args}};
  }
  nlohmann::json out = nlohmann::json::array();
  if (dict != nullptr) {
    for (const auto& [k, value] : dict->items)
      out.push_back({encode_result(k), encode_result(value)});
    return {{"dict", out}};
  }
  if (const std::vector<gin::Value>* items = gin::sequence(v)) {
    for (const gin::Value& item : *items) out.push_back(encode_result(item));
    return v.get_if<gin::Tuple>() != nullptr ? nlohmann::json{{"tuple", out}} : out;
  }
  return nlohmann::json::parse(gin::to_json(v));
}

/// Text that tells 1 from 1.0 and ignores the order of an object's keys.
inline std::string canonical(const nlohmann::ordered_json& j) {
  return nlohmann::json::parse(j.dump()).dump();
}
inline std::string canonical(const nlohmann::json& j) { return j.dump(); }

}  // namespace quintet::testing
