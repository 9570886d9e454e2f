#pragma once
// What every page of the program shares: its look (style.css), its charts (chart.js) and the escaping of texts; made part
// of the program when it is built. A page needs nothing from elsewhere.

#include <string>
#include <string_view>

namespace quintet::page {

extern const std::string_view kStyle;
/// report.html of apps/report with the style and the charts in it.
extern const std::string_view kReport;

/// For text and attributes of HTML.
std::string escaped(std::string_view text);
/// For <script type="application/json">: the same JSON, in which no text can end the element.
std::string escaped_json(std::string_view json);

}  // namespace quintet::page
