#pragma once
// A configuration: bindings read from gin files and flags, checked against a registry, and the
// machine that calls configurables with them. Semantics are gin-config's
// (github.com/google/gin-config, 0.5.0).
//
//   gin::Registry registry;
//   register_models(registry);
//   gin::Config config(registry, {.main_modules = {"t5x.train"}, .roots = roots});
//   config.load(command_line);                             // files, then bindings, then finalize()
//   config.call("train_script.train");
//
// Must outlive the callables it hands out. call() may be used from several threads once finalized.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/gin/command_line.h"
#include "runtime/gin/registry/finder.h"
#include "runtime/gin/registry/registry.h"

namespace quintet::gin {

class Config {
 public:
  struct Options {
    std::vector<std::string> search_paths = {};  // after the current directory
    std::vector<ConfigRoot> roots = {};  // after search_paths and the including file's folder
    /// What `import __main__ as x` means; the first that has the name wins.
    std::vector<std::string> main_modules = {"t5x.train", "t5x.eval", "t5x.infer",
                                             "t5x.precompile"};
    bool skip_unknown = false;  // unknown names and modules are listed, not errors
    bool needs_all =
        true;  // false: what is REQUIRED or undefined is an error of who reads it alone
    /// The gin text of a file; others than gin files may stand for some.
    std::function<std::string(const std::string& path)> read = read_gin_file;
  };
  Config(const Registry& registry, Options options);
  ~Config();
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;

  /// Files and bindings of a command line, in T5X's order, then finalize().
  void load(const CommandLine& command_line);
  void parse_file(const std::string& file);
  void parse_text(const std::string& text, const std::string& name);
  /// One `NAME = value` each, in one context, applied in order.
  void parse_bindings(const std::vector<std::string>& bindings);
  /// Throws one error that lists every unknown name, undefined macro and %gin.REQUIRED left, with
  /// places.
  void finalize();

  /// Calls "scope/name" (full name, suffix, or a name as imported in a file); explicit arguments
  /// win.
  Value call(const std::string& scoped_name, Callable::Named named = {}) const;
  template <typename T>
  T call_as(const std::string& scoped_name, Callable::Named named = {}) const {
    return as<T>(call(scoped_name, std::move(named)), Where{"result of " + scoped_name});
  }
  Value call(const Configurable& target, const std::vector<std::string>& scopes,
             std::vector<Value> positional, Callable::Named named) const;
  /// What a call would be given, defaults included: how methods read their parameters.
  Arguments arguments(const std::string& scoped_name, Callable::Named named = {}) const;
  bool knows(const std::string& scoped_name) const;

  /// The bound value of "scope/name.parameter", or of a macro "NAME", as written (not evaluated).
  /// nullptr if nothing is bound there.
  const Value* query(const std::string& binding) const;
  /// The same, evaluated: macros expanded, references called.
  Value evaluate(const std::string& binding) const;
  Value evaluate_value(const Value& value) const;

  /// The whole configuration as gin.config_str() prints it; reads back to the same bindings.
  std::string config_str(size_t width = 80, size_t indent = 4) const;
  /// Only what calls have used so far, defaults included (gin.operative_config_str()).
  std::string operative_config_str(size_t width = 80, size_t indent = 4) const;
  /// `config_str` as Markdown, for TensorBoard's text plugin (gin.markdown()).
  static std::string markdown(const std::string& config_str);

  /// Bindings that no call has read: "file:line: name".
  std::vector<std::string> unused() const;
  /// With skip_unknown: "file:line: what is unknown".
  const std::vector<std::string>& unknown() const;

  const Registry& registry() const;
  /// Scope of the innermost call that runs in this thread, outermost name first; empty outside of
  /// calls.
  std::vector<std::string> current_scope() const;
  /// The object kept under the current scope's name, made by `constructor` at the first request.
  Value singleton(const Callable& constructor) const;
  struct State;  // config_state.h, for the files of this folder
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace quintet::gin
