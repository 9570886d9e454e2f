#include "runtime/gin/resolved.h"

#include <algorithm>
#include <cmath>

#include "runtime/gin/config_state.h"
#include "runtime/gin/syntax/unicode.h"

namespace quintet::gin {
namespace {

constexpr int kMaxExpansion = 30;
constexpr size_t kMaxOutput = size_t{256} << 20;

class FileResolver {
 public:
  FileResolver(const Finder& finder, Resolved& out) : finder_(finder), out_(out) {}

  void file(const std::string& path) {
    stack_.push_back(path);
    text(read_gin_file(path), path);
    stack_.pop_back();
  }

  void text(const std::string& text, const std::string& name) {
    Parser parser(text, name);
    while (std::optional<Statement> s = parser.next()) {
      if (auto* binding = std::get_if<BindingStatement>(&s->what)) {
        const std::string key = scoped(binding->scope, binding->selector);
        if (binding->arg.empty())
          out_.macros.set(key, std::move(binding->value));
        else
          out_.bindings.set(key + "." + binding->arg, std::move(binding->value));
      } else if (const auto* import = std::get_if<ImportStatement>(&s->what)) {
        out_.imports.push_back(import->format());
      } else if (const auto* include = std::get_if<IncludeStatement>(&s->what)) {
        this->include(*s, include->file);
      }
    }
  }

 private:
  void include(const Statement& statement, const std::string& name) {
    const auto path = finder_.find(name, stack_.empty() ? "" : stack_.back());
    if (!path || std::find(stack_.begin(), stack_.end(), *path) != stack_.end()) {
      out_.missing_includes.push_back(name);
      return;
    }
    if (++includes_ > 10000 || stack_.size() > 100)
      throw ConfigError(statement.where, -1, "too many includes", statement.source);
    out_.includes.push_back(name);
    try {
      file(*path);
    } catch (const ConfigError& error) {
      throw ConfigError(error, "included from " + statement.where.str());
    }
  }

  const Finder& finder_;
  Resolved& out_;
  std::vector<std::string> stack_;
  size_t includes_ = 0;
};

class JsonWriter {
 public:
  explicit JsonWriter(const NamedValues* macros) : macros_(macros) {}

  void value(const Value& v, int expanded) {
    if (out.size() > kMaxOutput)
      throw ConfigError({}, -1, "the macros expand to more than 256 MiB");
    if (const Macro* m = v.get_if<Macro>()) return macro(*m, expanded);
    if (const Reference* r = v.get_if<Reference>()) {
      out += "{\"ref\": ";
      string(r->name());
      out += std::string(", \"call\": ") + (r->call ? "true" : "false") + "}";
    } else if (const std::string* text = v.get_if<std::string>()) {
      string(*text);
    } else if (const Bytes* bytes = v.get_if<Bytes>()) {
      std::string latin1;
      for (char c : bytes->data) append_utf8(latin1, static_cast<unsigned char>(c));
      out += "{\"bytes\": ";
      string(latin1);
      out += "}";
    } else if (const List* list = v.get_if<List>()) {
      items(*list, expanded);
    } else if (const Tuple* tuple = v.get_if<Tuple>()) {
      out += "{\"tuple\": ";
      items(tuple->items, expanded);
      out += "}";
    } else if (const Dict* dict = v.get_if<Dict>()) {
      out += "{\"dict\": [";
      for (size_t i = 0; i < dict->items.size(); ++i) {
        out += i > 0 ? ", [" : "[";
        value(dict->items[i].first, expanded);
        out += ", ";
        value(dict->items[i].second, expanded);
        out += "]";
      }
      out += "]}";
    } else {
      scalar(v);
    }
  }

  void string(std::string_view text) {
    out += '"';
    for (size_t i = 0; i < text.size();) {
      const size_t begin = i;
      const char32_t c = next_code_point(text, i);
      if (c == '"' || c == '\\') {
        out += '\\';
        out += static_cast<char>(c);
      } else if (c < 0x20 || c == 0x7F || (c >= 0xD800 && c <= 0xDFFF)) {
        out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
      } else {
        out += text.substr(begin, i - begin);
      }
    }
    out += '"';
  }

  void strings(const std::vector<std::string>& texts) {
    out += "[";
    for (size_t i = 0; i < texts.size(); ++i) {
      if (i > 0) out += ", ";
      string(texts[i]);
    }
    out += "]";
  }

  void object(const NamedValues& values) {
    out += "{";
    bool first = true;
    for (const auto& [name, v] : values.items()) {
      out += first ? "\n    " : ",\n    ";
      first = false;
      string(name);
      out += ": ";
      value(v, 0);
    }
    out += first ? "}" : "\n  }";
  }

  std::string out;

 private:
  void macro(const Macro& m, int expanded) {
    const Value* found =
        macros_ == nullptr || expanded >= kMaxExpansion ? nullptr : macros_->find(m.name);
    if (found != nullptr) return value(*found, expanded + 1);
    out += "{\"macro\": ";
    string(m.name);
    out += "}";
  }

  void items(const std::vector<Value>& values, int expanded) {
    out += "[";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out += ", ";
      value(values[i], expanded);
    }
    out += "]";
  }

  void scalar(const Value& v) {
    const double* d = v.get_if<double>();
    if (v.is_none()) {
      out += "null";
    } else if (const bool* b = v.get_if<bool>()) {
      out += *b ? "true" : "false";
    } else if (v.get_if<int64_t>() != nullptr || v.get_if<BigInt>() != nullptr ||
               (d != nullptr && std::isfinite(*d))) {
      out += v.repr();
    } else {
      out += "{\"repr\": ";
      string(v.repr());
      out += "}";
    }
  }

  const NamedValues* macros_;
};

}  // namespace

Value with_full_names(const Value& v) {
  if (const Reference* r = v.get_if<Reference>(); r != nullptr && r->target != nullptr)
    return Reference{r->scopes, r->target->name, r->call, r->target};
  if (const Dict* dict = v.get_if<Dict>()) {
    Dict out;
    for (const auto& [k, value] : dict->items)
      out.items.emplace_back(with_full_names(k), with_full_names(value));
    return out;
  }
  const std::vector<Value>* items = sequence(v);
  if (items == nullptr) return v;
  std::vector<Value> out;
  for (const Value& item : *items) out.push_back(with_full_names(item));
  if (v.get_if<List>() != nullptr) return List(std::move(out));
  return Tuple{std::move(out)};
}

void NamedValues::set(const std::string& name, Value value) {
  const auto [found, is_new] = index_.emplace(name, items_.size());
  if (is_new)
    items_.emplace_back(name, std::move(value));
  else
    items_[found->second].second = std::move(value);
}

const Value* NamedValues::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &items_[found->second].second;
}

Resolved resolve_files(const std::vector<std::string>& files,
                       const std::vector<std::string>& bindings, const Finder& finder) {
  Resolved out;
  FileResolver resolver(finder, out);
  for (const std::string& file : files) {
    const auto path = finder.find(file);
    if (!path)
      throw ConfigError(
          {}, -1, fmt::format("Unable to open file: {}; searched in {}", file, finder.searched()));
    resolver.file(*path);
  }
  for (const std::string& binding : bindings) resolver.text(binding, "binding \"" + binding + "\"");
  return out;
}

Resolved resolve(const Config& config) {
  const Config::State& state = config.state();
  Resolved out;
  for (const ImportStatement& s : state.imports) out.imports.push_back(s.format());
  out.includes = state.includes;
  for (const Bindings::Entry& entry : state.bindings.entries())
    for (const auto& [param, bound] : entry.params)
      (entry.target == state.macro ? out.macros : out.bindings)
          .set(binding_name(entry, param), with_full_names(bound.value));
  return out;
}

std::string to_json(const Value& value, const NamedValues* macros) {
  JsonWriter writer(macros);
  writer.value(value, 0);
  return std::move(writer.out);
}

std::string to_json(const Resolved& r, bool expand_macros) {
  JsonWriter writer(expand_macros ? &r.macros : nullptr);
  const auto key = [&](const char* text) { writer.out += text; };
  key("{\n  \"imports\": ");
  writer.strings(r.imports);
  key(",\n  \"includes\": ");
  writer.strings(r.includes);
  key(",\n  \"missing_includes\": ");
  writer.strings(r.missing_includes);
  key(",\n  \"macros\": ");
  writer.object(r.macros);
  key(",\n  \"bindings\": ");
  writer.object(r.bindings);
  key("\n}\n");
  return std::move(writer.out);
}

}  // namespace quintet::gin
