#pragma once
// The nearest known name, for error messages: "unknown verb 'trian'; did you mean 'train'?"

#include <string>
#include <string_view>
#include <vector>

namespace quintet {

/// Edits (insert, delete, replace, swap of neighbours) that turn a into b.
size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the fewest edits, the first of equals; empty if none is closer than half of the
/// name's length (and at least 2).
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// "; did you mean 'train'?" or nothing.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace quintet
