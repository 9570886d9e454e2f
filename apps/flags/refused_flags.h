#pragma once
// Flags of a verb that another of its flags or words makes meaningless.

#include <CLI/App.hpp>
#include <initializer_list>
#include <string_view>

namespace quintet {

/// Throws a usage error that names those of `flags` that were given, and what they are for.
void refuse_flags(const CLI::App& app, std::initializer_list<const char*> flags,
                  std::string_view what_for);

}  // namespace quintet
