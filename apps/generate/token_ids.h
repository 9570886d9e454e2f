#pragma once
// Token ids as people write them: "12 7 1".

#include <cstdint>
#include <string>
#include <vector>

namespace quintet {

/// Numbers between blanks or commas. Throws a usage error naming `what` for a text without any, what is no
/// number, and an id that is padding (0) or not below `vocab_size`.
std::vector<int32_t> parse_token_ids(const std::string& text, const std::string& what,
                                     int64_t vocab_size);

}  // namespace quintet
