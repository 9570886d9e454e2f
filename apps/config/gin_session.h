#pragma once
// A gin session: everything a gin file may name, one configuration loaded from files and flags, the tasks
// it knows. Verbs that read gin files start with one.
//
//   std::vector<std::string> args(...);
//   GinSession session(gin::extract_command_line(args));
//   session.config().call("train_script.train");
//   session.task("number_words");

#include <functional>
#include <memory>

#include "data/batches/batches.h"
#include "data/tasks/task.h"
#include "runtime/gin/config.h"

namespace quintet {

/// What a program of others adds to this one (apps/cli/program.h); set before a verb runs.
struct Additions {
  std::function<void(gin::Registry&)> configurables = {};  // registers its own
  std::string configs = {};  // where the gin files are, unless they are above the program
  std::string commit = {};   // for --version
};
Additions& additions();

/// All configurables of all folders, and the program's own. Entry points are the bodies of train_script.train,
/// eval_script.evaluate, infer_script.infer, export_lib.save and train_script.precompile; empty: they can be
/// configured, not called.
struct EntryPoints {
  std::function<gin::Value(const gin::Arguments&)> train, evaluate, infer, save, precompile;
};
void register_everything(gin::Registry& registry, EntryPoints entry_points = {},
                         bool allow_commands = true);

/// Our gin files, as T5X's users include them: in the folder QUINTET_CONFIGS of the environment, else in
/// share/quintet/configs above the program.
std::vector<gin::ConfigRoot> config_roots();

class GinSession {
 public:
  struct Options {
    std::vector<std::string> main_modules = {"t5x.train", "t5x.eval", "t5x.infer",
                                             "t5x.precompile"};
    std::vector<std::string> macros = {};  // read by name, without a reference in the gin files
    std::string text = {};                 // gin that is read before the files
    std::string trained =
        {};                 // a run's config.gin, whose training has warned of what has no effect
    bool needs_all = true;  // false: what nobody reads may be REQUIRED
    bool allow_commands = true;  // that files bind; false: nobody has named these files
  };
  /// Parses, finalizes and checks that nothing is bound in vain. Throws usage errors with file and line.
  GinSession(const gin::CommandLine& command_line, EntryPoints entry_points, Options options);
  explicit GinSession(const gin::CommandLine& command_line)
      : GinSession(command_line, {}, Options{}) {}

  gin::Config& config() { return *config_; }
  const gin::Registry& registry() const { return registry_; }
  /// A task or mixture by name, built in or of the configuration; throws with the nearest known name.
  data::ProviderPtr task(const std::string& name);
  /// The task or mixture that a data set configuration names or holds.
  data::ProviderPtr task(const data::DatasetConfig& dataset);
  const data::TaskRegistry& tasks();

 private:
  gin::Registry registry_;
  std::unique_ptr<gin::Config> config_;
  std::unique_ptr<data::TaskRegistry> tasks_;
};

}  // namespace quintet
