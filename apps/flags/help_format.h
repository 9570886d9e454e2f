#pragma once
// How --help looks: flags with their kind, limits and default in plain words, wrapped to the terminal.

#include <memory>
#include <string>

namespace CLI {
class FormatterBase;
}

namespace quintet {

/// `width`: columns of a line; a word that is longer has a line of its own.
std::shared_ptr<CLI::FormatterBase> help_format(size_t width);

/// Of the terminal that stdout is, at least 40; 100 where it is none.
size_t help_width();

}  // namespace quintet
