#pragma once
// What `quintet report` runs: a page about one or more training runs, of which each is a model directory, ours or T5X's.

#include <filesystem>
#include <string>
#include <vector>

#include "apps/flags/result_format.h"

namespace quintet {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string output = "report.html";
  ResultFormat format{"text"};
};

/// Writes the page and says so on stdout; warns on stderr of what it left out. Throws kData for a directory that is no
/// run, usage errors for a directory named twice and an output that is there and no such page, kDisk if it
/// cannot be written.
void write_report(const ReportOptions& options);

}  // namespace quintet
