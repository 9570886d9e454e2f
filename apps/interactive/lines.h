#pragma once
// Lines that are typed or piped. Ctrl-C at a prompt takes the line back.
//
//   const std::unique_ptr<Lines> lines = lines_of(stdin, asked_to_stop);
//   std::string line;
//   while (lines->next("quintet> ", line) != Lines::Kind::end) ...

#include <functional>
#include <memory>
#include <string>

namespace quintet {

class Lines {
 public:
  enum class Kind { line, cancelled, end };
  virtual ~Lines() = default;
  /// `prompt` goes to stderr where somebody types.
  virtual Kind next(const char* prompt, std::string& line) = 0;
};

/// Of a descriptor. `stop`: asked while it waits; where it becomes true, the line is cancelled. Typed lines can be edited
/// and are remembered in the user's cache folder, where the program was built with libedit.
std::unique_ptr<Lines> lines_of(int descriptor, const std::function<bool()>& stop);

/// Those of the terminal that stdin is; null in a build without libedit.
std::unique_ptr<Lines> edited_lines(const std::function<bool()>& stop);

/// Until there is something to read: false if `stop` became true before.
bool wait_for_input(int descriptor, const std::function<bool()>& stop);

}  // namespace quintet
