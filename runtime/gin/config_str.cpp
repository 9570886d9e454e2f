// The configuration as text, byte for byte as gin.config_str() writes it.

#include <algorithm>
#include <cmath>

#include "runtime/gin/config_state.h"
#include "runtime/gin/registry/builtins.h"
#include "runtime/gin/registry/import_manager.h"
#include "runtime/gin/syntax/pretty.h"
#include "runtime/gin/syntax/unicode.h"

namespace quintet::gin {
namespace {

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  return text;
}

class Writer {
 public:
  Writer(const Config::State& state, const Bindings& bindings, size_t width, size_t indent)
      : state_(state), imports_(state.names, state.imports), width_(width), indent_(indent) {
    for (const Bindings::Entry& e : bindings.entries()) entries_.push_back(&e);
    for (const Bindings::Entry* e : entries_) {
      imports_.require(e->target);
      for (const auto& [param, bound] : e->params) require_references(bound.value);
    }
    std::stable_sort(entries_.begin(), entries_.end(),
                     [&](const auto* a, const auto* b) { return sort_key(*a) < sort_key(*b); });
  }

  std::string write() {
    std::vector<std::string> lines;
    for (const ImportStatement& s : imports_.sorted()) lines.push_back(s.format());
    if (!lines.empty()) lines.emplace_back();
    const std::string rule = "# " + std::string(width_ - 2, '=');
    bool has_macros = false;
    for (const Bindings::Entry* e : entries_) {
      const Bound* bound = e->target == state_.macro ? e->find("value") : nullptr;
      if (bound == nullptr) continue;
      if (!has_macros) lines.insert(lines.end(), {"# Macros:", rule});
      has_macros = true;
      if (is_literal(bound->value)) lines.push_back(binding(e->scope, bound->value));
    }
    if (has_macros) lines.emplace_back();
    for (const Bindings::Entry* e : entries_) {
      if (e->target == state_.macro) continue;
      const std::string selector = scoped(e->scope, imports_.selector(e->target));
      lines.insert(lines.end(), {"# Parameters for " + selector + ":", rule});
      const size_t before = lines.size();
      std::vector<std::pair<std::string, const Value*>> params;
      for (const auto& [param, bound] : e->params)
        if (is_literal(bound.value)) params.emplace_back(param, &bound.value);
      std::sort(params.begin(), params.end());
      for (const auto& [param, value] : params)
        lines.push_back(binding(selector + "." + param, *value));
      if (lines.size() == before) lines.emplace_back("# None.");
      lines.emplace_back();
    }
    return join(lines, "\n");
  }

 private:
  void require_references(const Value& value) {
    if (const Reference* r = value.get_if<Reference>(); r != nullptr && r->target != nullptr)
      imports_.require(r->target);
    if (const std::vector<Value>* items = sequence(value))
      for (const Value& item : *items) require_references(item);
    if (const Dict* dict = value.get_if<Dict>())
      for (const auto& [k, v] : dict->items) {
        require_references(k);
        require_references(v);
      }
  }

  /// The name's parts from the last to the first, then the scope's; a method counts with its class.
  std::vector<std::string> sort_key(const Bindings::Entry& e) const {
    std::vector<std::string> key = split(lower(state_.names.selector_of(e.target)), '.');
    std::reverse(key.begin(), key.end());
    if (key.size() > 1 && state_.names.is_method(e.target)) {
      key[1] += "." + key[0];
      key.erase(key.begin());
    }
    const std::vector<std::string> scopes = split(lower(e.scope), '/');
    key.insert(key.end(), scopes.rbegin(), scopes.rend());
    return key;
  }

  /// Whether the parser would give the value back: no objects, infinities or proper complex
  /// numbers.
  static bool is_literal(const Value& v) {
    if (const double* d = v.get_if<double>()) return std::isfinite(*d);
    if (const Complex* c = v.get_if<Complex>())
      return c->real == 0 && !std::signbit(c->real) && std::isfinite(c->imag);
    if (const std::vector<Value>* items = sequence(v))
      return std::all_of(items->begin(), items->end(), is_literal);
    if (const Dict* dict = v.get_if<Dict>())
      return std::all_of(dict->items.begin(), dict->items.end(), [](const auto& item) {
        return is_literal(item.first) && is_literal(item.second);
      });
    return v.get_if<Object>() == nullptr && v.get_if<Callable>() == nullptr;
  }

  /// References under the names that they have in this text.
  Value renamed(const Value& v) const {
    if (const Reference* r = v.get_if<Reference>(); r != nullptr && r->target != nullptr) {
      Reference out = *r;
      if (imports_.is_dynamic() || state_.registry.match(out.selector).size() != 1)
        out.selector = imports_.selector(r->target);
      return out;
    }
    if (const Dict* dict = v.get_if<Dict>()) {
      Dict out;
      for (const auto& [k, value] : dict->items) out.items.emplace_back(renamed(k), renamed(value));
      return out;
    }
    const std::vector<Value>* items = sequence(v);
    if (items == nullptr) return v;
    std::vector<Value> out;
    for (const Value& item : *items) out.push_back(renamed(item));
    if (v.get_if<List>() != nullptr) return List(std::move(out));
    return Tuple{std::move(out)};
  }

  std::string binding(const std::string& key, const Value& value) const {
    const std::string text = pretty(renamed(value), width_ - indent_);
    if (text.find('\n') == std::string::npos && count_code_points(key + text) <= width_)
      return key + " = " + text;
    std::string out = key + " = \\";
    for (const std::string& line : split(text, '\n'))
      out += "\n" + std::string(indent_, ' ') + line;
    return out;
  }

  const Config::State& state_;
  ImportManager imports_;
  size_t width_, indent_;
  std::vector<const Bindings::Entry*> entries_;
};

}  // namespace

std::string Config::config_str(size_t width, size_t indent) const {
  return Writer(*state_, state_->bindings, width, indent).write();
}

std::string Config::operative_config_str(size_t width, size_t indent) const {
  const std::lock_guard lock(state_->mutex);
  return Writer(*state_, state_->operative, width, indent).write();
}

std::string Config::markdown(const std::string& config_str) {
  std::vector<std::string> lines = split(config_str, '\n');
  if (lines.back().empty()) lines.pop_back();
  for (std::string& line : lines) {
    if (!line.starts_with("#")) {
      line = "    " + line;
      continue;
    }
    line.erase(0, 2);
    if (line.starts_with("===="))
      line.clear();
    else if (line.starts_with("None"))
      line = "    # None.";
    else if (line.ends_with(":"))
      line = "#### " + line;
  }
  return join(lines, "\n");
}

}  // namespace quintet::gin
