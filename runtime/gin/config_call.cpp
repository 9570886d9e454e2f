// Calling configurables: bindings of the active scopes, references and macros evaluated, errors in
// context.

#include <algorithm>

#include "runtime/base/nearest.h"
#include "runtime/gin/config_state.h"
#include "runtime/gin/registry/builtins.h"

namespace quintet::gin {
namespace {

constexpr int kMaxCallDepth = 1000;
constexpr int64_t kMaxValues =
    1'000'000;  // of one evaluation: lists of macros of lists grow exponentially

/// One running call in this thread. Scopes are dynamic, as in gin: a callable invoked by a
/// configurable sees the scope that is active then.
struct Frame {
  Frame(const Config::State* s, const Configurable* t, std::vector<std::string> active)
      : state(s),
        target(t),
        scope(std::move(active)),
        parent(top),
        depth(parent == nullptr ? 1 : parent->depth + 1) {
    top = this;
  }
  ~Frame() { top = parent; }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  const Config::State* state;
  const Configurable* target;
  std::vector<std::string> scope;
  Frame* parent;
  int depth;
  static thread_local Frame* top;
};
thread_local Frame* Frame::top = nullptr;

const Frame* innermost(const Config::State* state) {
  const Frame* frame = Frame::top;
  while (frame != nullptr && frame->state != state) frame = frame->parent;
  return frame;
}

std::vector<std::string> active_scope(const Config::State* state) {
  const Frame* frame = innermost(state);
  return frame == nullptr ? std::vector<std::string>() : frame->scope;
}

/// The innermost calls, for errors about endless recursion.
std::string call_chain() {
  std::string out;
  const Frame* frame = Frame::top;
  for (int i = 0; i < 8 && frame != nullptr; ++i, frame = frame->parent)
    out =
        (frame->target->name == kMacroName ? "%" + join(frame->scope, "/") : frame->target->name) +
        (i == 0 ? "" : " -> ") + out;
  return out;
}

class DepthGuard {
 public:
  DepthGuard() {
    if (++depth > kMaxCallDepth) {
      --depth;
      throw ConfigError(
          {}, -1,
          "configuration without end (maximum recursion depth exceeded): ... -> " + call_chain());
    }
  }
  ~DepthGuard() { --depth; }

 private:
  static thread_local int depth;
};
thread_local int DepthGuard::depth = 0;

/// Counts the values that one evaluation, with all that it contains, produces.
class WorkGuard {
 public:
  WorkGuard() {
    if (nested == 0) count = 0;
    if (++count > kMaxValues)
      throw ConfigError({}, -1,
                        fmt::format("the configuration expands to more than {} values: ... -> {}",
                                    kMaxValues, call_chain()));
    ++nested;
  }
  ~WorkGuard() { --nested; }

 private:
  static thread_local int nested;
  static thread_local int64_t count;
};
thread_local int WorkGuard::nested = 0;
thread_local int64_t WorkGuard::count = 0;

/// What the caller passes, by name.
std::map<std::string, Arguments::Item> given_arguments(const Configurable& target,
                                                       const std::string& who,
                                                       std::vector<Value> positional,
                                                       Callable::Named named) {
  std::map<std::string, Arguments::Item> given;
  if (positional.size() > target.params.size())
    throw ConfigError({}, -1,
                      fmt::format("{}: called with {} arguments, takes {}", who, positional.size(),
                                  target.params.size()));
  for (size_t i = 0; i < positional.size(); ++i) {
    const std::string& param = target.params[i].name;
    given[param] = {std::move(positional[i]), {who + "." + param}};
  }
  for (auto& [param, value] : named) {
    if (!target.accepts(param))
      throw ConfigError({}, -1, fmt::format("{}: has no parameter '{}'", who, param));
    given[param] = {std::move(value), {who + "." + param}};
  }
  return given;
}

}  // namespace

const Configurable& Config::State::require(const std::string& selector) const {
  const Resolution found = names.lookup(selector);
  if (found.target == nullptr) throw ConfigError({}, -1, found.problem);
  return *found.target;
}

Value Config::State::evaluate(const Value& value) const {
  const DepthGuard depth;
  const WorkGuard work;
  if (const Reference* reference = value.get_if<Reference>()) {
    if (reference->target == nullptr)
      throw ConfigError({}, -1,
                        fmt::format("No configurable matching reference '{}'", value.repr()));
    if (reference->call) return call(*reference->target, reference->scopes, {}, {});
    return Callable(self, reference->target, reference->scopes);
  }
  if (const Macro* m = value.get_if<Macro>()) return evaluate_macro(*m);
  if (const Dict* dict = value.get_if<Dict>()) {
    Dict out;
    for (const auto& [k, v] : dict->items) out.items.emplace_back(evaluate(k), evaluate(v));
    return out;
  }
  const std::vector<Value>* items = sequence(value);
  if (items == nullptr) return value;
  std::vector<Value> out;
  out.reserve(items->size());
  for (const Value& item : *items) out.push_back(evaluate(item));
  if (value.get_if<List>() != nullptr) return List(std::move(out));
  return Tuple{std::move(out)};
}

Value Config::State::evaluate_macro(const Macro& m) const {
  if (m.name == kRequiredName)
    throw ConfigError({}, -1, "%gin.REQUIRED stands where a value is needed");
  if (const Value* constant = registry.find_constant(m.name)) return *constant;
  if (const Bindings::Entry* entry = bindings.find(m.name, macro))
    for (const auto& [param, bound] : entry->params)
      QT_CHECK(bound.value != Value(Macro{kRequiredName}),
               "{}: {} set to `%gin.REQUIRED`; give it a value, e.g. --gin.{}=...",
               bound.where.str(), m.name, m.name);
  const std::vector<std::string> scope = split(m.name, '/');
  for (const Frame* f = Frame::top; f != nullptr; f = f->parent)
    if (f->state == this && f->target == macro && f->scope == scope)
      throw ConfigError({}, -1,
                        "macros without end (maximum recursion depth exceeded): " + call_chain() +
                            " -> %" + m.name);
  return call(*macro, scope, {}, {});
}

std::vector<Config::State::Active> Config::State::active_bindings(
    const Configurable& target, const std::vector<std::string>& scope,
    const std::map<std::string, Arguments::Item>& given) const {
  std::vector<Active> active;
  for (size_t n = 0; n <= scope.size(); ++n) {  // inner scopes replace what outer ones bind
    const auto end = scope.begin() + static_cast<std::ptrdiff_t>(n);
    const Bindings::Entry* entry = bindings.find(join({scope.begin(), end}, "/"), &target);
    if (entry == nullptr) continue;
    for (const auto& param : entry->params) {
      if (given.contains(param.first)) continue;
      const auto old = std::find_if(active.begin(), active.end(),
                                    [&](const Active& a) { return a.param == param.first; });
      if (old == active.end())
        active.push_back({param.first, &param.second, entry});
      else
        *old = {param.first, &param.second, entry};
    }
  }
  return active;
}

void Config::State::record(const Configurable& target, const std::string& scope,
                           const std::vector<Active>& active,
                           const std::map<std::string, Arguments::Item>& given) const {
  const std::lock_guard lock(mutex);
  operative.entry(scope, &target);
  for (const Param& p : target.params)
    if (p.default_value && !given.contains(p.name))
      operative.set(scope, &target, p.name, {*p.default_value, {}});
  for (const Active& a : active) {
    used.insert({a.entry, a.param});
    operative.set(scope, &target, a.param, *a.bound);
  }
}

Arguments Config::State::bind(const Configurable& target, const std::vector<std::string>& scope,
                              std::vector<Value> positional, Callable::Named named) const {
  const std::string scope_text = join(scope, "/");
  const std::string who = scoped(scope_text, target.name);
  auto given = given_arguments(target, who, std::move(positional), std::move(named));
  const std::vector<Active> active = active_bindings(target, scope, given);

  std::vector<std::string> missing;
  for (const Param& p : target.params) {
    const bool is_bound = std::any_of(active.begin(), active.end(),
                                      [&](const Active& a) { return a.param == p.name; });
    if (p.required && !is_bound && !given.contains(p.name)) missing.push_back(p.name);
  }
  if (!missing.empty() && &target == macro)
    throw ConfigError({}, -1, fmt::format("the macro %{} has no value", scope_text));
  if (!missing.empty())
    throw ConfigError({}, -1,
                      fmt::format("Required bindings for `{}` not provided in config: {}; add e.g. "
                                  "--gin.{}.{}=...",
                                  who, join(missing, ", "), who, missing[0]));
  record(target, scope_text, active, given);
  for (const Active& a : active) {
    const std::string place = a.bound->where.str();
    given[a.param] = {evaluate(a.bound->value),
                      {(place.empty() ? "" : place + ": ") + who + "." + a.param}};
  }
  return Arguments(self, &target, std::move(given));
}

namespace {

/// The parameter that a message is about: "b1 must be ..." or "scale_by_adam: b1 must be ..."; empty: none of these.
std::string subject_of(const std::string& message, const Configurable& target) {
  const size_t colon = message.find(": ");
  for (const size_t begin : {size_t{0}, colon == std::string::npos ? 0 : colon + 2}) {
    const size_t end = message.find_first_of(" :=,(", begin);
    const std::string word = message.substr(begin, end == std::string::npos ? end : end - begin);
    if (target.find(word) != nullptr) return word;
  }
  return {};
}

/// The configurable's result; what it says of a parameter gets the place of the binding.
Value result_of(const Configurable& target, const Arguments& arguments) {
  try {
    return target.function(arguments);
  } catch (const Error& error) {
    const std::string subject = subject_of(error.what(), target);
    if (subject.empty() || !arguments.has(subject)) throw;
    rethrow_at(arguments.where(subject));
  }
}

}  // namespace

Value Config::State::call(const Configurable& target, const std::vector<std::string>& scopes,
                          std::vector<Value> positional, Callable::Named named) const {
  const DepthGuard guard;
  const Frame frame(this, &target, scopes.empty() ? active_scope(this) : scopes);
  try {
    const Arguments arguments = bind(target, frame.scope, std::move(positional), std::move(named));
    if (!target.function)
      throw ConfigError(
          {}, -1,
          fmt::format("{} has parameters for gin, but cannot be called from it", target.name));
    Value result = result_of(target, arguments);
    if (Object* object = std::get_if<Object>(&result.data());
        object != nullptr && object->maker.empty())
      object->maker = target.name;
    return result;
  } catch (const ConfigError& error) {
    if (&target == macro || frame.depth > 20) throw;
    const std::string scope =
        frame.scope.empty() ? "" : " in scope '" + join(frame.scope, "/") + "'";
    throw ConfigError(error, fmt::format("In call to configurable '{}'{}", target.name, scope));
  }
}

Value Callable::operator()(std::vector<Value> positional, Named named) const {
  return config_->call(*target_, scopes_, std::move(positional), std::move(named));
}
Value Callable::operator()(std::vector<Value> positional) const {
  return (*this)(std::move(positional), {});
}
Value Callable::operator()() const { return (*this)({}, {}); }
Value Callable::singleton() const { return config_->singleton(*this); }
const std::string& Callable::name() const { return target_->name; }
std::string Callable::scoped_name() const {
  return fmt::format("{}{}{}", fmt::join(scopes_, "/"), scopes_.empty() ? "" : "/", name());
}

Value Config::call(const Configurable& target, const std::vector<std::string>& scopes,
                   std::vector<Value> positional, Callable::Named named) const {
  return state_->call(target, scopes, std::move(positional), std::move(named));
}

Value Config::call(const std::string& scoped_name, Callable::Named named) const {
  const auto [scope, selector] = split_scope(scoped_name);
  return state_->call(state_->require(selector),
                      scope.empty() ? std::vector<std::string>() : split(scope, '/'), {},
                      std::move(named));
}

Arguments Config::arguments(const std::string& scoped_name, Callable::Named named) const {
  const auto [scope, selector] = split_scope(scoped_name);
  const Configurable& target = state_->require(selector);
  const Frame frame(state_.get(), &target,
                    scope.empty() ? active_scope(state_.get()) : split(scope, '/'));
  return state_->bind(target, frame.scope, {}, std::move(named));
}

Value Config::evaluate(const std::string& binding) const {
  const Value* value = query(binding);
  if (value == nullptr) throw ConfigError({}, -1, fmt::format("nothing is bound to '{}'", binding));
  return state_->evaluate(*value);
}

Value Config::evaluate_value(const Value& value) const { return state_->evaluate(value); }

std::vector<std::string> Config::current_scope() const { return active_scope(state_.get()); }

Value Config::singleton(const Callable& constructor) const {
  const std::string key = join(current_scope(), "/");
  const std::lock_guard lock(state_->singleton_mutex);
  if (const auto found = state_->singletons.find(key); found != state_->singletons.end())
    return found->second;
  Value value = constructor();
  state_->singletons.emplace(key, value);
  return value;
}

}  // namespace quintet::gin
