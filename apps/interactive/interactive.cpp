#include "apps/interactive/interactive.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/finetune/finetune_metrics.h"
#include "apps/interactive/interactive_model.h"
#include "apps/interactive/lines.h"
#include "apps/process/output.h"
#include "data/preprocessors/strings.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"
#include "runtime/base/nearest.h"
#include "runtime/base/process/messages.h"

namespace quintet {
namespace {

using CommandJson = nlohmann::ordered_json;

/// The first word, and the rest without the blanks around it.
std::pair<std::string, std::string> split_word(const std::string& text) {
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  return {text.substr(0, end), data::strip(text.substr(end))};
}

/// A number behind which no target comes is one of steps.
std::pair<int64_t, std::string> steps_of(const std::string& text) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto [word, rest] = split_word(text);
  if (word.find_first_not_of("0123456789") != std::string::npos || word.empty() ||
      rest.starts_with("=>"))
    return {1, text};
  int64_t steps = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), steps);
  QT_CHECK(error == std::errc() && steps > 0 && steps <= kMost,
           "train {}: expected at least one step, and at most {}", word, kMost);
  return {steps, rest};
}

/// Whether the lines that follow are its examples. A word that is no command may have some, too: "trian 5 -".
bool has_block(const std::string& command, const std::string& rest) {
  const bool is_alone =
      command == "predict" || command == "score";  // nothing comes before EXAMPLES
  return rest == "-" || (!is_alone && split_word(rest).second == "-");
}

/// Ctrl-C took the lines of a command back.
struct TakenBack {};

class Interpreter {
 public:
  Interpreter(const InteractiveFlags& flags, const gin::CommandLine& line, Ranks& ranks)
      : flags_(flags), file_(commands_file(flags)), model_(flags, line, ranks) {
    is_typed_ = !file_ && isatty(STDIN_FILENO) != 0;
    ended_ = model_.stop().reason().has_value();  // asked while the model was read
    if (is_typed_ && !ended_) model_.stop().let_interrupts_stop_commands();
    lines_ = lines_of(file_ ? file_->descriptor() : STDIN_FILENO,
                      [this] { return model_.stop().reason().has_value(); });
  }

  int run() {
    std::exception_ptr failure;  // of reading or printing: what was trained is kept all the same
    try {
      run_commands();
    } catch (const Bug&) {
      throw;
    } catch (...) {
      failure = std::current_exception();
    }
    if (failure && model_.has_unsaved()) fmt::print(stderr, "saved {}\n", model_.save().string());
    if (failure) std::rethrow_exception(failure);
    if (model_.has_unsaved()) save("");
    flush_output();
    if (is_stopped_) return static_cast<int>(ExitCode::kSavedRunAgain);
    return is_typed_ ? 0 : static_cast<int>(code_);
  }

 private:
  static std::optional<File> commands_file(const InteractiveFlags& flags) {
    if (flags.commands.empty() || flags.commands == "-") return std::nullopt;
    QT_CHECK_AS(ExitCode::kData, is_there(flags.commands), "--commands={}: there is no such file",
                flags.commands);
    return File::open_read(flags.commands);
  }

  void run_commands() {
    if (is_typed_)
      fmt::print(stderr, "step {}; 'help' lists the commands, Ctrl-C stops one, Ctrl-D ends\n",
                 model_.step());
    look_for_stop();
    while (!ended_) {
      if (const auto line = next_line("quintet> ")) execute(data::strip(*line));
      flush_output();
      look_for_stop();
    }
  }

  /// Ctrl-C ends nothing but a command where somebody types.
  void look_for_stop() {
    const auto reason = model_.stop().reason();
    if (!reason || (is_typed_ && !ended_ && model_.stop().take_interrupt())) return;
    fmt::print(stderr, "stopped by {}\n", *reason);
    model_.stop().clear_stop_file();
    ended_ = is_stopped_ = true;
  }

  using Run = void (Interpreter::*)(const std::string& rest);
  struct Command {
    const char *name, *arguments, *what;
    Run run;
  };
  static const std::vector<Command>& commands() {
    static const std::vector<Command> all = {
        {"train", "[STEPS] EXAMPLES", "steps of training; one if no number is given",
         &Interpreter::train},
        {"predict", "EXAMPLES", "what the model answers", &Interpreter::predict},
        {"score", "EXAMPLES", "log-likelihoods of their targets", &Interpreter::score},
        {"evaluate", "[METRIC,..] EXAMPLES",
         "metrics of the answers: exact_match,f1, or a task's own, if none is named",
         &Interpreter::evaluate},
        {"save", "", "writes a checkpoint into --output_dir; the end does, too",
         &Interpreter::save},
        {"status", "", "the step, and whether it is saved", &Interpreter::status},
        {"help", "", "this list", &Interpreter::help},
        {"quit", "", "ends, as Ctrl-D does", &Interpreter::quit}};
    return all;
  }

  bool json() const { return flags_.format.is_json(); }
  static void print(const CommandJson& object) {
    fmt::print("{}\n", object.dump(-1, ' ', false, CommandJson::error_handler_t::replace));
  }

  std::optional<std::string> next_line(const char* prompt) {
    std::string line;
    const Lines::Kind kind = lines_->next(prompt, line);
    ++number_;
    if (kind == Lines::Kind::line) return line;
    // Ctrl-C takes a typed line back; where nobody types it is a signal as others.
    ended_ = kind == Lines::Kind::end || !is_typed_ || !model_.stop().take_interrupt();
    return std::nullopt;
  }

  void execute(const std::string& line) {
    if (line.empty() || line.starts_with('#')) return;
    const int64_t number = number_;
    try {
      const auto [name, rest] = split_word(line);
      // Before anything can be wrong, so that none of them is taken for a command.
      block_ = has_block(name, rest) ? read_block() : std::vector<std::string>();
      std::vector<std::string> names;
      for (const Command& command : commands()) {
        if (command.name == name) {
          QT_CHECK(rest.empty() || *command.arguments != '\0', "{}: takes nothing, found '{}'",
                   name, rest);
          const StopRequests::Command running(model_.stop());
          return (this->*command.run)(rest);
        }
        names.emplace_back(command.name);
      }
      fail(ExitCode::kUsage,
           "'{}' is no command{}; 'predict TEXT' answers a text, 'help' lists all", name,
           did_you_mean(name, names));
    } catch (const TakenBack&) {
    } catch (const Bug&) {
      throw;
    } catch (const Error& error) {
      if (code_ == ExitCode::kDone) code_ = error.code();
      const std::string where = is_typed_ ? "" : fmt::format("line {}: ", number);
      if (json())
        print({{"error", where + error.what()}, {"code", static_cast<int>(error.code())}});
      flush_output();
      fmt::print(stderr, "{}{}{}\n", error_label(), where, error.what());
    }
  }

  /// The lines up to an empty one.
  std::vector<std::string> read_block() {
    std::vector<std::string> lines;
    for (;;) {
      const auto line = next_line("... ");
      if (!line && (!ended_ || model_.stop().reason())) throw TakenBack();
      if (!line || data::strip(*line).empty()) return lines;
      lines.push_back(data::strip(*line));
    }
  }

  /// Those that are named, or the last ones of the command if none are.
  const Examples& examples(const std::string& command, const std::string& text) {
    const bool has_targets = command != "predict";
    if (!text.empty())
      examples_[command] = model_.examples().read(
          text, has_targets, command == "train" ? "train" : "validation", block_);
    const auto found = examples_.find(command);
    QT_CHECK(found != examples_.end(),
             "{}: expected examples: INPUT{}, JSON, @FILE, @TASK or -; 'help' says more", command,
             has_targets ? " => TARGET" : "");
    return found->second;
  }

  void train(const std::string& text) {
    const auto [steps, rest] = steps_of(text);
    const int64_t before = model_.step();
    const auto metrics = model_.train(examples("train", rest), steps);
    CommandJson object = {{"step", model_.step()}};
    std::string words = fmt::format("step {}", model_.step());
    for (const std::string& name :
         {model_.loss_per_token(), std::string("loss"), std::string("accuracy")})
      if (const auto found = metrics.find(name);
          found != metrics.end() && !object.contains(name)) {  // a mean loss is that of a token
        object[name] = json_number(found->second);
        words += fmt::format("  {} {:.6g}", name, found->second);
      }
    json() ? print(object) : fmt::print("{}\n", words);
    tell_stopped(model_.step() - before < steps);
  }

  void tell_stopped(bool stopped) {
    if (stopped || model_.stop().reason())
      fmt::print(stderr, "stopped at step {}\n", model_.step());
  }

  void predict(const std::string& text) {
    model_.predict(examples("predict", text), [this](const Answered& one) {
      json() ? print({{"input", one.input},
                      {"prediction", one.prediction},
                      {"score", json_number(one.score)}})
             : fmt::print("{}\n", one_line(one.prediction));
    });
    tell_stopped(false);
  }

  void score(const std::string& text) {
    model_.score(examples("score", text), [this](const Answered& one) {
      json()
          ? print({{"input", one.input}, {"target", one.target}, {"score", json_number(one.score)}})
          : fmt::print("{:.6g}\t{}\n", one.score, one_line(one.target));
    });
    tell_stopped(false);
  }

  static std::string one_line(std::string text) {
    std::ranges::replace(text, '\n', ' ');
    return text;
  }

  void evaluate(const std::string& text) {
    auto [word, rest] = split_word(text);
    std::vector<std::string> metrics = data::split(word, ",");
    if (word.empty() || rest.starts_with("=>") ||
        !std::ranges::all_of(
            metrics, [this](const std::string& name) { return model_.knows_metric(name); })) {
      QT_CHECK(!word.ends_with(',') && !rest.starts_with('@'),
               "evaluate: '{}' names no metrics, as exact_match,f1 does; there are: {}", word,
               fmt::join(finetune_metric_names(), ", "));
      metrics.clear();
      rest = text;
    }
    const Examples& of = examples("evaluate", rest);
    if (metrics.empty() && !of.is_task) metrics = {"exact_match", "f1"};
    const auto outputs = model_.evaluate(of, metrics);
    if (!outputs) return tell_stopped(true);
    QT_CHECK(!outputs->empty(),
             "evaluate: the task has no metrics; name some: evaluate exact_match,f1 {}", rest);
    for (const data::TaskOutputs& task : *outputs) print_metrics(task);
  }

  void print_metrics(const data::TaskOutputs& task) {
    CommandJson object = {
        {"step", model_.step()}, {"task", task.task->name()}, {"examples", task.examples->size()}};
    std::string words = fmt::format("step {}  {}  {} examples", model_.step(), task.task->name(),
                                    task.examples->size());
    for (const auto& [name, value] : data::scalars_of(task.metrics)) {
      object[name] = json_number(value);
      words += fmt::format("  {} {:.6g}", name, value);
    }
    json() ? print(object) : fmt::print("{}\n", words);
  }

  void save(const std::string&) {
    const std::string checkpoint = model_.save().string();
    json() ? print({{"step", model_.step()}, {"checkpoint", checkpoint}})
           : fmt::print("saved {}\n", checkpoint);
  }

  void status(const std::string&) {
    const std::string folder = model_.folder().is_kept() ? model_.folder().path().string() : "";
    if (json())
      return print({{"step", model_.step()}, {"saved", model_.is_saved()}, {"output_dir", folder}});
    fmt::print("step {}, {}\n", model_.step(),
               folder.empty()      ? "nothing is kept: no --output_dir"
               : model_.is_saved() ? "saved in " + folder
                                   : "not saved in " + folder);
  }

  void help(const std::string&) {
    for (const Command& command : commands())
      fmt::print("{:<30} {}\n", fmt::format("{} {}", command.name, command.arguments),
                 command.what);
    fmt::print(
        "\nEXAMPLES: INPUT => TARGET (predict: INPUT alone), JSON: {{\"input\": .., \"target\": "
        "..}} or\n"
        "[..], @FILE of .jsonl, .csv or .tsv, @TASK or @TASK:SPLIT, or -: the lines that follow up "
        "to\n"
        "an empty one. None: those that the command had before.\n");
  }

  void quit(const std::string&) { ended_ = true; }

  const InteractiveFlags& flags_;
  std::optional<File> file_;  // opened before the model is read, which may take long
  InteractiveModel model_;
  std::unique_ptr<Lines> lines_;
  std::vector<std::string> block_;            // that follows the command
  std::map<std::string, Examples> examples_;  // by command
  bool is_typed_ = false, ended_ = false, is_stopped_ = false;
  int64_t number_ = 0;  // of the line
  ExitCode code_ = ExitCode::kDone;
};

}  // namespace

int run_interactive_commands(const InteractiveFlags& flags, const gin::CommandLine& gin_line) {
  Ranks ranks(RankFlags{});
  QT_CHECK(ranks.size() == 1,
           "quintet interactive: {} ranks were started, and one reads the commands; start it "
           "without a launcher",
           ranks.size());
  flags.compute.start();
  ranks.open(Device::current());
  return Interpreter(flags, gin_line, ranks).run();
}

}  // namespace quintet
