// Statements into bindings: names resolved file by file, includes where they stand.

#include <algorithm>

#include "runtime/base/nearest.h"
#include "runtime/gin/config_state.h"
#include "runtime/gin/registry/builtins.h"

namespace quintet::gin {
namespace {

constexpr size_t kMaxFiles = 10000;
constexpr size_t kMaxIncludeDepth = 100;

/// `import a.b` or `from a import b` -> "a/b.gin": a gin file may stand for a module we do not
/// have.
std::string file_of_module(std::string module) {
  std::replace(module.begin(), module.end(), '.', '/');
  return module + ".gin";
}

}  // namespace

void Config::State::parse_file(const std::string& file, const Statement* include) {
  const std::string including = include_stack.empty() ? "" : include_stack.back();
  const std::optional<std::string> path = finder.find(file, including);
  if (!path) {
    const std::string message =
        fmt::format("Unable to open file: {}; searched in {}", file, finder.searched(including));
    if (include != nullptr) throw ConfigError(include->where, -1, message, include->source);
    throw ConfigError({}, -1, message + "; more places: --gin_search_paths=DIR,DIR");
  }
  if (std::find(include_stack.begin(), include_stack.end(), *path) != include_stack.end())
    throw ConfigError(include->where, -1,
                      "the file includes itself: " + join(include_stack, " -> ") + " -> " + *path);
  if (include_stack.size() >= kMaxIncludeDepth || ++files_parsed > kMaxFiles)
    throw ConfigError(include->where, -1, "too many includes");
  if (include != nullptr) includes.push_back(file);
  include_stack.push_back(*path);
  ParseContext context;
  try {
    parse_text(options.read(*path), *path, context);
  } catch (const ConfigError& error) {
    include_stack.pop_back();
    if (include == nullptr) throw;
    throw ConfigError(error, "included from " + include->where.str());
  }
  include_stack.pop_back();
}

void Config::State::parse_text(const std::string& text, const std::string& name,
                               ParseContext& context) {
  Parser parser(text, name);
  while (const std::optional<Statement> statement = parser.next()) apply(*statement, context);
}

void Config::State::report(const Statement& statement, const std::string& problem) {
  // Once a file: the bindings of a block with an unknown name would all say the same.
  if (problem.empty() || !reported.insert({statement.where.file, problem}).second) return;
  (options.skip_unknown ? unknown : problems).push_back(statement.where.str() + ": " + problem);
}

void Config::State::apply(const Statement& statement, ParseContext& context) {
  if (const auto* binding = std::get_if<BindingStatement>(&statement.what)) {
    apply_binding(statement, *binding, context);
  } else if (const auto* import = std::get_if<ImportStatement>(&statement.what)) {
    apply_import(statement, *import, context);
  } else if (const auto* include = std::get_if<IncludeStatement>(&statement.what)) {
    parse_file(include->file, &statement);
  } else {
    report(statement,
           names.resolve(context, std::get<BlockStatement>(statement.what).selector).problem);
  }
}

void Config::State::apply_import(const Statement& statement, const ImportStatement& import,
                                 ParseContext& context) {
  const bool is_gin = import.is_from && import.module.starts_with("__gin__.");
  bool is_known = is_gin || names.knows_module(import.module);
  if (!is_known && finder.find(file_of_module(import.module))) {
    parse_file(file_of_module(import.module), &statement);
    is_known = true;
  } else if (!is_known) {
    report(statement, fmt::format("No module named '{}': Python cannot be imported; tasks of your "
                                  "own go into gin, for this "
                                  "import into {} on the search path",
                                  import.module, file_of_module(import.module)));
  }
  const std::string problem = names.import(context, import, is_known);
  if (!problem.empty()) throw ConfigError(statement.where, -1, problem, statement.source);
  registry.run_module_hook(import.module);
  if (std::find(imports.begin(), imports.end(), import) == imports.end()) imports.push_back(import);
}

void Config::State::apply_binding(const Statement& statement, const BindingStatement& binding,
                                  ParseContext& context) {
  if (binding.arg.empty()) {
    replace(scoped(binding.scope, binding.selector), macro, "value",
            {take_over(binding.value, statement, context), statement.where});
    return;
  }
  const Resolution found = names.resolve(context, binding.selector);
  if (found.target == nullptr) {
    report(statement, found.problem);
    return;
  }
  if (!found.target->accepts(binding.arg)) {
    std::vector<std::string> known;
    for (const Param& p : found.target->params) known.push_back(p.name);
    report(statement, fmt::format("Configurable '{}' doesn't have a parameter named '{}'{}",
                                  binding.selector, binding.arg, did_you_mean(binding.arg, known)));
    return;
  }
  replace(binding.scope, found.target, binding.arg,
          {take_over(binding.value, statement, context), statement.where});
}

void Config::State::replace(const std::string& scope, const Configurable* target,
                            const std::string& param, Bound bound) {
  if (const Bindings::Entry* entry = bindings.find(scope, target))
    if (const Bound* before = entry->find(param)) {
      bound.shadowed = before->shadowed;
      bound.shadowed.push_back({before->value, before->where});
    }
  bindings.set(scope, target, param, std::move(bound));
}

Value Config::State::take_over(const Value& value, const Statement& statement,
                               ParseContext& context) {
  if (const Reference* reference = value.get_if<Reference>()) {
    Reference out = *reference;
    const Resolution found = names.resolve(context, out.selector);
    report(statement, found.target == nullptr && !found.problem.empty()
                          ? fmt::format("{} in reference '{}'", found.problem, value.repr())
                          : "");
    out.target = found.target;
    if (out.target == macro && out.call) return Macro{join(out.scopes, "/")};
    return out;
  }
  if (const Macro* m = value.get_if<Macro>()) {
    const std::vector<std::string> constants = registry.match_constants(m->name);
    if (constants.size() > 1)
      report(statement, fmt::format("Ambiguous constant selector '{}', matches {}", m->name,
                                    join(constants, ", ")));
    return constants.empty() ? *m : Macro{constants[0]};
  }
  if (const Dict* dict = value.get_if<Dict>()) {
    Dict out;
    for (const auto& [k, v] : dict->items)
      out.items.emplace_back(take_over(k, statement, context), take_over(v, statement, context));
    return out;
  }
  const std::vector<Value>* items = sequence(value);
  if (items == nullptr) return value;
  std::vector<Value> out;
  for (const Value& item : *items) out.push_back(take_over(item, statement, context));
  if (value.get_if<List>() != nullptr) return List(std::move(out));
  return Tuple{std::move(out)};
}

void Config::State::check_complete(std::vector<std::string>& found) const {
  std::vector<std::string> macros = registry.constant_names();
  for (const Bindings::Entry& entry : bindings.entries())
    if (entry.target == macro) macros.push_back(entry.scope);
  for (const Bindings::Entry& entry : bindings.entries())
    for (const auto& [param, bound] : entry.params) {
      const std::string name = binding_name(entry, param), place = bound.where.str() + ": ";
      if (bound.value == Value(Macro{kRequiredName})) {
        found.push_back(fmt::format(
            "{}{} set to `%gin.REQUIRED` but not subsequently overridden; give it a value, "
            "e.g. --gin.{}=...",
            place, name, name));
        continue;
      }
      visit_values(bound.value, [&](const Value& v) {
        const Macro* m = v.get_if<Macro>();
        if (m == nullptr || registry.find_constant(m->name) != nullptr ||
            bindings.find(m->name, macro) != nullptr)
          return;
        found.push_back(fmt::format(
            "{}{} uses the macro %{}, which nothing defines; give it a value, e.g. --gin.{}=...{}",
            place, name, m->name, m->name, did_you_mean(m->name, macros)));
      });
    }
}

}  // namespace quintet::gin
