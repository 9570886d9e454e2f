#pragma once
// What a gin file may name of data/sources.

namespace quintet::gin {
class Registry;
}

namespace quintet::data {

void register_sources(gin::Registry& registry);

}  // namespace quintet::data
