#pragma once
// Bytes as text that can stand in JSON (RFC 4648, section 4).

#include <optional>
#include <string>
#include <string_view>

namespace quintet::data {

std::string base64(std::string_view bytes);
/// Nothing if the text is not base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace quintet::data
