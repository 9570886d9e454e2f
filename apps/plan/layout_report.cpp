#include "apps/plan/layout_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "apps/page/page.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

using page::escaped;

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string mib_text(int64_t bytes) { return grouped(mib(bytes)); }

/// A row of cells; the first, or all of a heading, are <th>.
std::string cells(const std::vector<std::string>& texts, bool heading, const char* style = "") {
  std::string row = fmt::format("<tr{}>", style);
  for (size_t i = 0; i < texts.size(); ++i) {
    const char* tag = heading || i == 0 ? "th" : "td";
    row += fmt::format("<{0}>{1}</{0}>", tag, escaped(texts[i]));
  }
  return row + "</tr>\n";
}

constexpr std::pair<const char*, double LayoutRow::*> kParts[] = {
    {"compute", &LayoutRow::compute},
    {"exposed communication", &LayoutRow::exposed},
    {"data", &LayoutRow::data}};

/// Step times as bars: compute, exposed communication, data, in the colours 0 to 2 of the style.
std::string drawing(const std::vector<LayoutRow>& rows, const LayoutRow* best) {
  constexpr double kBar = 22, kLeft = 120, kWidth = 480;
  double longest = 0, y = 0;
  for (const LayoutRow& row : rows) longest = std::max(longest, row.seconds);
  std::string bars;
  for (const LayoutRow& row : rows) {
    if (!row.refused.empty()) continue;
    bars += fmt::format("<text x=\"0\" y=\"{:.1f}\"{}>{}{}</text>\n", y + 15,
                        &row == best ? " font-weight=\"bold\"" : "", row.layout.name(),
                        &row == best ? " *" : "");
    double x = kLeft;
    for (size_t i = 0; i < std::size(kParts); ++i) {
      const double width = kWidth * std::max(0.0, row.*kParts[i].second) / longest;
      bars += fmt::format(
          "<rect class=\"dot c{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" "
          "height=\"{:.0f}\"/>\n",
          i, x, y + 3, width, kBar - 6);
      x += width;
    }
    bars += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{:.4g} s</text>\n", x + 6, y + 15,
                        row.seconds);
    y += kBar;
  }
  if (y == 0) return "";
  std::string legend;
  for (size_t i = 0; i < std::size(kParts); ++i)
    legend += fmt::format(
        "<span><svg width=\"12\" height=\"12\"><rect class=\"dot c{}\" width=\"12\" "
        "height=\"12\"/></svg> {}</span>\n",
        i, kParts[i].first);
  return fmt::format(
      "<div class=\"scroll\"><svg class=\"bars\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "style=\"max-width: {0:.0f}px\" "
      "role=\"img\" aria-label=\"step time of each layout\">\n{2}</svg></div>\n<div "
      "class=\"bar-legend\">{3}</div>\n",
      kLeft + kWidth + 90, y, bars, legend);
}

std::string speed_table(const std::vector<LayoutRow>& rows, const LayoutRow* best) {
  std::string html = "<div class=\"scroll\"><table>\n" +
                     cells({"layout", "tokens/s", "MFU", "step, s", "compute, s",
                            "exposed communication, s", "data, s", ""},
                           true);
  for (const LayoutRow& row : rows) {
    if (!row.refused.empty()) {
      html += fmt::format(
          "<tr class=\"refused\"><th>{}</th><td colspan=\"7\">cannot run: {}</td></tr>\n",
          row.layout.name(), escaped(row.refused));
      continue;
    }
    html += cells(
        {row.layout.name(), grouped(row.tokens_per_second), fmt::format("{:.2f} %", 100 * row.mfu),
         fmt::format("{:.5f}", row.seconds), fmt::format("{:.5f}", row.compute),
         fmt::format("{:.5f}", row.exposed), fmt::format("{:.5f}", row.data),
         &row == best ? "best"
         : row.fits   ? ""
                      : "does not fit"},
        false, &row == best ? " class=\"best\"" : "");
  }
  return html + "</table></div>\n";
}

std::string memory_table(const std::vector<LayoutRow>& rows) {
  std::vector<std::string> heading{"layout"};
  for (int kind = 0; kind < kMemoryKinds; ++kind)
    heading.emplace_back(name_of(static_cast<MemoryKind>(kind)));
  heading.emplace_back("all");
  std::string html = "<div class=\"scroll\"><table>\n" + cells(heading, true);
  for (const LayoutRow& row : rows) {
    if (!row.refused.empty()) continue;
    std::vector<std::string> texts{row.layout.name()};
    for (const int64_t bytes : row.memory) texts.push_back(mib_text(bytes));
    texts.push_back(mib_text(MemoryMeter::sum(row.memory)));
    html += cells(texts, false);
  }
  return html + "</table></div>\n";
}

std::string traffic_table(const std::vector<LayoutRow>& rows) {
  std::string html = "<div class=\"scroll\"><table>\n" +
                     cells({"layout", "collective", "over", "calls", "MiB"}, true);
  for (const LayoutRow& row : rows)
    for (const auto& [what, entry] : row.traffic)
      html += cells({row.layout.name(), what.first, what.second, std::to_string(entry.calls),
                     mib_text(entry.bytes)},
                    false);
  return html + "</table></div>\n";
}

std::string published_html(const std::vector<PublishedRun>& runs) {
  std::string html =
      "<section><h2>Published runs and this plan</h2>\n<div class=\"scroll\"><table>\n" +
      cells({"run", "", "published", "planned", "error", "source"}, true);
  for (const PublishedRun& run : runs)
    html +=
        cells({run.name, run.unit, fmt::format("{:.4g}", run.published),
               run.refused.empty() ? fmt::format("{:.4g}", run.planned) : run.refused,
               run.refused.empty() ? fmt::format("{:+.0f} %", 100 * run.error()) : "", run.source},
              false);
  return html + "</table></div></section>\n";
}

/// The fastest first, then those that cannot run, each in the order given.
std::vector<LayoutRow> by_speed(std::vector<LayoutRow> rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const LayoutRow& a, const LayoutRow& b) {
    return std::pair(!a.refused.empty(), -a.tokens_per_second) <
           std::pair(!b.refused.empty(), -b.tokens_per_second);
  });
  return rows;
}

}  // namespace

std::string grouped(double value) {
  if (std::abs(value) < 1000) return fmt::format("{:.4g}", value);
  std::string text = fmt::format("{:.0f}", value);
  for (int64_t at = std::ssize(text) - 3; at > (value < 0 ? 1 : 0); at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

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
                          const std::vector<LayoutRow>& unordered,
                          const std::vector<PublishedRun>& published) {
  const std::vector<LayoutRow> rows = by_speed(unordered);
  const LayoutRow* best = best_of(rows);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\"/><title>{0}</title>\n"
      "<style>\n{1}\n.bars text {{ font-size: 12px; fill: var(--text); }} .bars {{ display: block; "
      "width: 100%; }}"
      " .bar-legend span {{ margin-right: 1rem; font-size: .85rem; }} td {{ white-space: nowrap; }}"
      " .facts td {{ white-space: normal; }} .bars {{ min-width: 30rem; }}"
      " tr.refused td {{ white-space: normal; }}\n</style></head>\n"
      "<body>\n<header><h1>{0}</h1></header>\n",
      escaped(title), page::kStyle);
  html += "<section><div class=\"scroll\"><table class=\"text facts\">\n";
  for (const auto& fact : facts) html += cells({fact.first, fact.second}, false);
  html += "</table></div></section>\n";
  if (!rows.empty()) {
    html += "<section><h2>A step</h2>\n" + drawing(rows, best) + speed_table(rows, best) +
            "</section>\n";
    html += "<section><h2>Memory of a rank when it holds most, MiB</h2>\n" + memory_table(rows) +
            "</section>\n";
    html += "<section><h2>Sent by a rank in a step</h2>\n" + traffic_table(rows) + "</section>\n";
  }
  if (!published.empty()) html += published_html(published);
  return html + "</body></html>\n";
}

}  // namespace quintet
