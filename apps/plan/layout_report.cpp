#include "apps/plan/layout_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/base/check.h"

namespace quintet {
namespace {

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text)
    safe += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return safe;
}

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// A row of cells; the first, or all of a heading, are <th>.
std::string cells(const std::vector<std::string>& texts, bool heading, const char* style = "") {
  std::string row = fmt::format("<tr{}>", style);
  for (size_t i = 0; i < texts.size(); ++i) {
    const char* tag = heading || i == 0 ? "th" : "td";
    row += fmt::format("<{0}>{1}</{0}>", tag, escaped(texts[i]));
  }
  return row + "</tr>\n";
}

/// Step times as bars: compute, exposed communication, data.
std::string drawing(const std::vector<LayoutRow>& rows, const LayoutRow* best) {
  constexpr double kBar = 22, kLeft = 110, kWidth = 600;
  double longest = 0;
  size_t count = 0;
  for (const LayoutRow& row : rows) {
    if (!row.refused.empty()) continue;
    longest = std::max(longest, row.seconds);
    ++count;
  }
  if (count == 0) return "";
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n",
      kLeft + kWidth + 90, kBar * static_cast<double>(count + 1));
  double y = 0;
  for (const LayoutRow& row : rows) {
    if (!row.refused.empty()) continue;
    svg += fmt::format("<text x=\"0\" y=\"{:.1f}\"{}>{}{}</text>\n", y + 15,
                       &row == best ? " font-weight=\"bold\"" : "", row.layout.name(),
                       &row == best ? " *" : "");
    double x = kLeft;
    for (const auto& [seconds, color] :
         {std::pair(row.compute, "#4878a8"), std::pair(row.exposed, "#d8824a"),
          std::pair(row.data, "#8aa860")}) {
      const double width = kWidth * std::max(0.0, seconds) / longest;
      svg += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\"/>\n", x,
          y + 3, width, kBar - 6, color);
      x += width;
    }
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{:.4g} s</text>\n", x + 6, y + 15,
                       row.seconds);
    y += kBar;
  }
  double x = kLeft;
  for (const auto& [name, color] :
       {std::pair("compute", "#4878a8"), std::pair("exposed communication", "#d8824a"),
        std::pair("data", "#8aa860")}) {
    svg += fmt::format(
        "<rect x=\"{0:.0f}\" y=\"{1:.1f}\" width=\"12\" height=\"12\" fill=\"{2}\"/>"
        "<text x=\"{3:.0f}\" y=\"{4:.1f}\">{5}</text>\n",
        x, y + 5, color, x + 18, y + 15, name);
    x += 180;
  }
  return svg + "</svg>\n";
}

std::string speed_table(const std::vector<LayoutRow>& rows, const LayoutRow* best) {
  std::string html = "<table>\n" + cells({"layout", "tokens/s", "MFU", "step, s", "compute, s",
                                          "exposed communication, s", "data, s", ""},
                                         true);
  for (const LayoutRow& row : rows) {
    if (!row.refused.empty()) {
      html += fmt::format(
          "<tr class=\"refused\"><th>{}</th><td colspan=\"7\">cannot run: {}</td></tr>\n",
          row.layout.name(), escaped(row.refused));
      continue;
    }
    html += cells({row.layout.name(), fmt::format("{:.1f}", row.tokens_per_second),
                   fmt::format("{:.2f} %", 100 * row.mfu), fmt::format("{:.5f}", row.seconds),
                   fmt::format("{:.5f}", row.compute), fmt::format("{:.5f}", row.exposed),
                   fmt::format("{:.5f}", row.data),
                   &row == best ? "best"
                   : row.fits   ? ""
                                : "does not fit"},
                  false, &row == best ? " class=\"best\"" : "");
  }
  return html + "</table>\n";
}

std::string memory_table(const std::vector<LayoutRow>& rows) {
  std::vector<std::string> heading{"layout"};
  for (int kind = 0; kind < kMemoryKinds; ++kind)
    heading.emplace_back(name_of(static_cast<MemoryKind>(kind)));
  heading.emplace_back("all");
  std::string html = "<table>\n" + cells(heading, true);
  for (const LayoutRow& row : rows) {
    if (!row.refused.empty()) continue;
    std::vector<std::string> texts{row.layout.name()};
    for (const int64_t bytes : row.memory) texts.push_back(fmt::format("{:.2f}", mib(bytes)));
    texts.push_back(fmt::format("{:.2f}", mib(MemoryMeter::sum(row.memory))));
    html += cells(texts, false);
  }
  return html + "</table>\n";
}

std::string traffic_table(const std::vector<LayoutRow>& rows) {
  std::string html = "<table>\n" + cells({"layout", "collective", "over", "calls", "MiB"}, true);
  for (const LayoutRow& row : rows)
    for (const auto& [what, entry] : row.traffic)
      html += cells({row.layout.name(), what.first, what.second, std::to_string(entry.calls),
                     fmt::format("{:.4f}", mib(entry.bytes))},
                    false);
  return html + "</table>\n";
}

std::string published_html(const std::vector<PublishedRun>& runs) {
  std::string html = "<h2>Published runs and this plan</h2>\n<table>\n" +
                     cells({"run", "", "published", "planned", "error", "source"}, true);
  for (const PublishedRun& run : runs)
    html +=
        cells({run.name, run.unit, fmt::format("{:.4g}", run.published),
               run.refused.empty() ? fmt::format("{:.4g}", run.planned) : run.refused,
               run.refused.empty() ? fmt::format("{:+.0f} %", 100 * run.error()) : "", run.source},
              false);
  return html + "</table>\n";
}

}  // namespace

std::string published_table(const std::vector<PublishedRun>& runs) {
  std::string text = fmt::format("{:<52}{:<12}{:>12}{:>12}{:>9}\n", "published runs", "",
                                 "published", "planned", "error");
  struct Errors {
    double worst = 0, sum = 0, count = 0;
  };
  std::map<std::string, Errors> errors;  // by unit
  for (const PublishedRun& run : runs) {
    text += fmt::format("{:<52}{:<12}{:>12.4g}", run.name, run.unit, run.published);
    if (!run.refused.empty()) {
      text += fmt::format("  {}\n", run.refused);
      continue;
    }
    text += fmt::format("{:>12.4g}{:>+8.0f} %\n", run.planned, 100 * run.error());
    Errors& of_unit = errors[run.unit];
    of_unit.worst = std::max(of_unit.worst, std::abs(run.error()));
    of_unit.sum += std::abs(run.error());
    ++of_unit.count;
  }
  for (const auto& [unit, of_unit] : errors)
    text += fmt::format("error of {}: {:.0f} % in the mean, {:.0f} % at most\n", unit,
                        100 * of_unit.sum / of_unit.count, 100 * of_unit.worst);
  return text;
}

std::string layout_report(const std::string& title,
                          const std::vector<std::pair<std::string, std::string>>& facts,
                          const std::vector<LayoutRow>& rows,
                          const std::vector<PublishedRun>& published) {
  const LayoutRow* best = best_of(rows);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>{0}</title>\n"
      "<style>body{{font-family:sans-serif;margin:2em}}table{{border-collapse:collapse;margin:1em "
      "0}}"
      "th,td{{border:1px solid #ccc;padding:.25em .6em;text-align:right}}th{{background:#f2f2f2}}"
      ".best{{background:#e4f2dc}}.refused td{{text-align:left;color:#777}}</style></head>\n"
      "<body>\n<h1>{0}</h1>\n",
      escaped(title));
  html += "<table>\n";
  for (const auto& fact : facts) html += cells({fact.first, fact.second}, false);
  html += "</table>\n";
  if (!rows.empty()) {
    html += "<h2>A step</h2>\n" + drawing(rows, best) + speed_table(rows, best);
    html += "<h2>Memory of a rank when it holds most, MiB</h2>\n" + memory_table(rows);
    html += "<h2>Sent by a rank in a step</h2>\n" + traffic_table(rows);
  }
  if (!published.empty()) html += published_html(published);
  return html + "</body></html>\n";
}

}  // namespace quintet
