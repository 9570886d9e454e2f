#include "apps/cli/program.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "apps/cli/verbs.h"
#include "apps/flags/flag_files.h"
#include "apps/process/memory_limit.h"
#include "apps/process/output.h"
#include "apps/process/signals.h"
#include "apps/process/version.h"
#include "runtime/base/check.h"
#include "runtime/base/nearest.h"
#include "runtime/base/process/messages.h"
#include "runtime/mpi/session.h"

namespace quintet {
namespace {

struct Verb {
  std::string_view name, summary, example;
  int (*run)(std::span<char* const> args);
};

const std::vector<Verb> kVerbs = {
#define QUINTET_LIST(name, summary, example) {#name, summary, example, run_##name},
    QUINTET_VERBS(QUINTET_LIST)
#undef QUINTET_LIST
};

void print_usage(std::FILE* stream) {
  fmt::print(stream,
             "quintet {}: trains, fine-tunes, evaluates and runs T5-family models.\n\n"
             "Usage: quintet VERB [flags]\n\nVerbs:\n",
             kVersion);
  for (const Verb& verb : kVerbs) fmt::print(stream, "  {:<11} {}\n", verb.name, verb.summary);
  fmt::print(stream, "\nExamples:\n");
  for (const Verb& verb : kVerbs) fmt::print(stream, "  {}\n", verb.example);
  fmt::print(stream,
             "\n'quintet VERB --help' shows a verb's flags; 'quintet --version' what was built.\n"
             "Of the environment: NO_COLOR, OMP_NUM_THREADS, QUINTET_PROGRESS, QUINTET_CONFIGS, "
             "QUINTET_PATH_MAP.\n");
}

int run_verb(const Verb& verb, std::span<char* const> args) {
  std::vector<std::string> all = with_flag_files({args.begin(), args.end()});
  std::vector<char*> texts;
  for (std::string& text : all) texts.push_back(text.data());
  return verb.run(texts);
}

int dispatch(std::span<char* const> args) {
  if (args.empty()) {
    print_usage(stderr);
    return static_cast<int>(ExitCode::kUsage);
  }
  const std::string name = args[0];
  if (name == "--help" || name == "-h" || (name == "help" && args.size() == 1)) {
    print_usage(stdout);
    return 0;
  }
  if (name == "help") {  // quintet help VERB
    std::string flag = "--help";
    return dispatch(std::array{args[1], flag.data()});
  }
  if (name == "--version" || name == "-V") {
    fmt::print("{}\n", version_text(additions().commit));
    return 0;
  }
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) {
    if (verb.name == name) return run_verb(verb, args.subspan(1));
    names.emplace_back(verb.name);
  }
  fail(ExitCode::kUsage, "quintet: '{}' is not a verb{}\n'quintet --help' lists the verbs", name,
       did_you_mean(name, names));
}

/// A rank that fails ends the job. All of them may have met the same: the first says it.
[[noreturn]] void end_job(int rank, const std::string& message, ExitCode code) {
  if (rank > 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::string text = fmt::format("{}rank {}: {}\n", error_label(), rank, message);
  std::fputs((rank > 0 ? text : error_label() + message + "\n").c_str(), stderr);
  mpi::Session::fail(code);
}

int report(const std::string& message, ExitCode code) {
  if (const auto rank = mpi::Session::rank_of_process()) end_job(*rank, message, code);
  std::fputs((error_label() + message + "\n").c_str(), stderr);
  return static_cast<int>(code);
}

/// What the system or the disk refused, unless it is a place for results.
int report_system(const std::system_error& error) {
  if (is_output_error(error)) {
    try {
      fail_output(error);
    } catch (const Error& disk) {
      return report(disk.what(), disk.code());
    }
  }
  const bool of_files = dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr;
  return report(error.what(), of_files ? ExitCode::kDisk : ExitCode::kEnvironment);
}

int run(std::span<char* const> args) {
  try {
    start_signal_thread();
    const int code = dispatch(args);
    close_output();
    return code;
  } catch (const Error& error) {
    return report(error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return report("out of memory; a smaller batch, more microbatches or shorter lengths need less",
                  ExitCode::kEnvironment);
  } catch (const std::system_error& error) {
    return report_system(error);
  } catch (const std::exception& error) {
    return report(std::string(error.what()) + " (this is a bug of quintet)", ExitCode::kBug);
  }
}

}  // namespace

std::vector<Command> all_commands() {
  std::vector<Command> commands;
  for (const Verb& verb : kVerbs) {
    const std::string name(verb.name);
    const std::vector<Command> parts = name == "bench"       ? bench_commands()
                                       : name == "tokenizer" ? tokenizer_commands()
                                                             : std::vector<Command>{};
    if (parts.empty()) commands.push_back({name, std::string(verb.summary), verb.run});
    for (const Command& part : parts)
      commands.push_back({name + " " + part.name, part.summary, part.run});
  }
  return commands;
}

int run_program(int argc, char** argv, Additions own) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is then an error of the write that meets it
  prepare_output();
  prepare_memory();
  additions() = std::move(own);
  return run({argv + 1, static_cast<size_t>(argc > 0 ? argc - 1 : 0)});
}

}  // namespace quintet
