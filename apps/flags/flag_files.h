#pragma once
// absl's --flagfile and --undefok: flags that a file holds, and unknown ones that are no error.
//
//   with_flag_files({"--flagfile=run.flags", "--dry_run"})    {"--gin_file=a.gin", "--tfds_data_dir=/d", "--dry_run"}
//   without_undefined({"--new=1", "--undefok=new"}, {"--undefok"})                              {"--undefok=new"}

#include <set>
#include <string>
#include <vector>

namespace quintet {

inline constexpr const char* kUndefokFlag = "--undefok";

/// `args` with the lines of the file in place of each --flagfile=FILE, files that they name too, and with "_"
/// for "-" in flags' names, but for --gin.NAME and what follows "--". Lines that are empty or begin with # or //
/// are comments. Throws kUsage for a file that cannot be read, or that names
/// itself.
std::vector<std::string> with_flag_files(const std::vector<std::string>& args);

/// `args` without the flags that --undefok=NAME,NAME names and `known` lacks: --NAME, --NAME=VALUE, --noNAME.
std::vector<std::string> without_undefined(const std::vector<std::string>& args,
                                           const std::set<std::string>& known);

/// Takes the flags of jax out of `args` (--jax_NAME, --nojax_NAME, a value behind "=") and returns them.
std::vector<std::string> take_jax_flags(std::vector<std::string>& args);

}  // namespace quintet
