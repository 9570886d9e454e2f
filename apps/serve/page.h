#pragma once
// The web page, page.html as it is; made part of the program when it is built.

#include <string_view>

namespace quintet::serve {

extern const std::string_view kPage;

}  // namespace quintet::serve
