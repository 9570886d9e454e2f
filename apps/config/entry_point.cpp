#include "apps/config/entry_point.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>

#include "apps/config/export/export_names.h"
#include "runtime/base/check.h"
#include "runtime/gin/explain.h"

namespace quintet {
namespace {

bool is_part_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '/';
}

/// Whether a text has `name`, "scope/module.Class.parameter", as a word: its class and parameter, after a scope none but
/// its own.
bool mentions(const std::string& text, const std::string& name) {
  const size_t parameter = name.rfind('.');
  if (parameter == std::string::npos) return false;
  const size_t own = name.find_last_of("./", parameter - 1) + 1;  // 0: neither module nor scope
  const std::string wanted = name.substr(own), scope = name.substr(0, name.rfind('/') + 1);
  for (size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) {
    const size_t end = at + wanted.size();
    if (end < text.size() && is_part_of_name(text[end]) && text[end] != '.') continue;
    size_t begin = at;
    while (begin > 0 && is_part_of_name(text[begin - 1])) --begin;
    if (begin < at && text[at - 1] != '.' && text[at - 1] != '/') continue;
    const std::string before = text.substr(begin, at - begin);
    if (before.find('/') == std::string::npos || before.starts_with(scope)) return true;
  }
  return false;
}

/// Whether a text says a place, "run.gin:1" and not "run.gin:12".
bool says_place(const std::string& text, const std::string& place) {
  const size_t at = place.empty() ? std::string::npos : text.find(place);
  if (at == std::string::npos) return false;
  const size_t end = at + place.size();
  return end == text.size() || !is_part_of_name(text[end]) || text[end] == '.';
}

/// The bindings that an error names: "Class.parameter" anywhere, or "parameter: " at its beginning. Those alone whose place
/// it says, if it does.
std::vector<gin::Explained> named_in(const std::string& text,
                                     const std::vector<gin::Explained>& all) {
  const std::string subject = text.substr(0, text.find(": "));
  std::vector<gin::Explained> named;
  std::ranges::copy_if(all, std::back_inserter(named), [&](const gin::Explained& binding) {
    const bool is_subject = binding.name.ends_with("." + subject);
    return binding.is_used && (is_subject || mentions(text, binding.name));
  });
  const auto is_placed = [&](const gin::Explained& binding) {
    return says_place(text, binding.place);
  };
  if (std::ranges::any_of(named, is_placed)) std::erase_if(named, std::not_fn(is_placed));
  return named;
}

/// The same error, and where the bindings are that it names, and their macros.
Error with_places(const Error& error, const gin::Config& config, const std::string& entry_point) {
  std::string text = error.what();
  const auto add = [&](const gin::Explained& binding) {
    if (!binding.place.empty() && !says_place(text, binding.place))
      text += fmt::format("\n  {} = {}: {}", binding.name, binding.value.repr(), binding.place);
  };
  const std::vector<gin::Explained> all =
      gin::explain(config, {.macros = {}, .configurables = {entry_point}});
  for (const gin::Explained& binding : named_in(text, all)) {
    add(binding);
    const auto* macro = binding.written.get_if<gin::Macro>();
    if (macro == nullptr) continue;
    const auto bound = std::ranges::find(all, macro->name, &gin::Explained::name);
    if (bound != all.end()) add(*bound);
  }
  return {error.code(), text};
}

}  // namespace

std::string name_of(EntryPoint entry_point) {
  switch (entry_point) {
    case EntryPoint::train:
      return "t5x.train.train";
    case EntryPoint::evaluate:
      return "t5x.eval.evaluate";
    case EntryPoint::infer:
      return "t5x.infer.infer";
    case EntryPoint::save:
      return kSave;
    case EntryPoint::precompile:
      return kPrecompile;
  }
  QT_ASSERT(false);
}

int run_entry_point(EntryPoint entry_point, const gin::CommandLine& command_line,
                    const std::function<bool(GinSession&)>& prepare,
                    const std::function<int(GinSession&, const gin::Arguments&)>& body) {
  const std::string name = name_of(entry_point);
  GinSession* running = nullptr;
  int code = 0;
  const auto call = [&](const gin::Arguments& arguments) -> gin::Value {
    code = body(*running, arguments);
    return {};
  };
  EntryPoints bodies;
  (entry_point == EntryPoint::train      ? bodies.train
   : entry_point == EntryPoint::evaluate ? bodies.evaluate
   : entry_point == EntryPoint::infer    ? bodies.infer
   : entry_point == EntryPoint::save     ? bodies.save
                                         : bodies.precompile) = call;
  GinSession::Options options;
  if (entry_point != EntryPoint::save && entry_point != EntryPoint::precompile)
    options.main_modules = {
        name.substr(0, name.rfind('.'))};  // else a run's config.gin may be read, too
  GinSession session(command_line, std::move(bodies), std::move(options));
  running = &session;
  try {
    if (prepare(session)) session.config().call(name);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kUsage || std::string_view(error.what()).starts_with("binding "))
      throw;  // of the command line: shown
    throw with_places(error, session.config(), name);
  }
  return code;
}

bool print_configuration(GinSession& session, bool leads) {
  if (leads) fmt::print("{}", session.config().config_str());
  return false;
}

}  // namespace quintet
