#include "apps/config/entry_point.h"

#include "apps/config/export/export_names.h"
#include "runtime/base/check.h"

namespace quintet {

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
  if (prepare(session)) session.config().call(name);
  return code;
}

bool print_configuration(GinSession& session, bool leads) {
  if (leads) fmt::print("{}", session.config().config_str());
  return false;
}

}  // namespace quintet
