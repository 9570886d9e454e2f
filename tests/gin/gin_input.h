#pragma once
// What the fuzz target and the mutation test do with arbitrary bytes: parse them, resolve them, and
// where they are a configuration of oraclelib, call its root. Only quintet::Error may come out.

#include <sstream>
#include <string>

#include "runtime/gin/syntax/error.h"
#include "runtime/gin/syntax/parser.h"
#include "tests/gin/oraclelib.h"

namespace quintet::testing {

/// A written configuration without its headings: gin leaves out values that have no literal (the
/// infinity of 1e999), and what is read back then lacks the heading that stood over nothing else.
inline std::string without_headings(const std::string& written) {
  std::istringstream lines(written);
  std::string statements;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && line[0] != '#') statements += line + '\n';
  return statements;
}

/// Throws if a written configuration does not read back; returns whether `text` parsed.
inline bool run_gin_input(const gin::Registry& registry, const std::string& text) {
  std::vector<gin::Statement> statements;
  try {
    statements = gin::parse(text, "input");
  } catch (const Bug&) {
    throw;
  } catch (const Error&) {
    return false;
  }
  try {
    gin::Config config(registry, {.skip_unknown = true});
    config.parse_text(text, "input");
    config.finalize();
    const std::string written = config.config_str();
    gin::Config again(registry, {.skip_unknown = true});
    again.parse_text(written, "written");
    if (without_headings(again.config_str()) != without_headings(written))
      throw Bug("does not read back:\n" + written + "\n---\n" + again.config_str());
    gin::to_json(gin::resolve(config));
    config.call("oraclelib.train");
  } catch (const Bug&) {
    throw;
  } catch (const Error&) {
  }
  return true;
}

}  // namespace quintet::testing
