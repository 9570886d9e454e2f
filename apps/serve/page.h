#pragma once
// The files page.html and openapi.json as they are; made part of the program when it is built.

#include <string_view>

namespace quintet::serve {

extern const std::string_view kPage;
extern const std::string_view kOpenApi;

}  // namespace quintet::serve
