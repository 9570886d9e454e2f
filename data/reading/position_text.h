#pragma once
// A stream's place as text that stays short however many tasks a mixture has: each integer as a
// zigzag varint (7 bits a byte, lowest first), the bytes in base64.
//
//   position_text({3, -1, 300}) == "BgHYBA=="

#include <string>
#include <string_view>

#include "data/examples/dataset.h"

namespace quintet::data {

std::string position_text(const Position& position);
/// Throws kData if the text is not one that position_text makes.
Position position_from_text(std::string_view text);

}  // namespace quintet::data
