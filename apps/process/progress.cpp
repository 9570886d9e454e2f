#include "apps/process/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "runtime/base/clock.h"

namespace quintet {
namespace {

size_t columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 80;
}

}  // namespace

Progress::Options Progress::from_environment() {
  const char* mode = std::getenv("QUINTET_PROGRESS");
  Options options;
  options.terminal = isatty(STDERR_FILENO) != 0;
  if (mode != nullptr && std::string_view(mode) == "bar") options.terminal = true;
  if (mode != nullptr && std::string_view(mode) == "lines") options.terminal = false;
  if (mode != nullptr && std::string_view(mode) == "none") options.out = nullptr;
  return options;
}

Progress::Progress(std::string label, int64_t first, int64_t total, Options options)
    : label_(std::move(label)), first_(first), done_(first), total_(total), options_(options) {
  if (options_.clock == nullptr) options_.clock = now_seconds;
  if (options_.seconds < 0) options_.seconds = options_.terminal ? 0.1 : 10;
  started_ = options_.clock();
}

Progress::~Progress() { finish(); }

bool Progress::due() const {
  return options_.out != nullptr &&
         (drawn_at_ < 0 || options_.clock() - drawn_at_ >= options_.seconds);
}

void Progress::update(int64_t done, const std::string& detail) {
  done_ = done;
  if (!detail.empty()) detail_ = detail;
  stale_ = true;
  if (due()) draw();
}

void Progress::line(const std::string& text) {
  if (options_.out == nullptr) return;
  if (bar_shown_) fmt::print(options_.out, "\r\x1b[K");
  fmt::print(options_.out, "{}\n", text);
  if (bar_shown_) draw();
  std::fflush(options_.out);
}

void Progress::finish() {
  if (finished_ || options_.out == nullptr) return;
  finished_ = true;
  if (stale_) draw();
  if (bar_shown_) fmt::print(options_.out, "\n");
  std::fflush(options_.out);
}

std::string Progress::text() const {
  const double elapsed = options_.clock() - started_;
  const int64_t fresh = done_ - first_;
  const double rate = elapsed > 0.05 && fresh > 0 ? static_cast<double>(fresh) / elapsed : 0;
  const std::string unit = options_.unit.empty() ? "" : " " + options_.unit;
  const std::string of = total_ > 0 ? fmt::format("/{}", total_) : "";
  std::string text = fmt::format("{} {}{}{}", label_, done_, of, unit);
  if (rate > 0) {
    text += rate >= 1 || !unit.empty() ? fmt::format("  {:.1f}{}/s", rate, unit)
                                       : fmt::format("  {:.1f} s each", 1 / rate);
    if (done_ < total_)
      text += "  ETA " + duration(static_cast<double>(total_ - done_) / rate);
    else
      text += "  in " + duration(elapsed);
  }
  return detail_.empty() ? text : text + "  " + detail_;
}

void Progress::draw() {
  std::string words = text();
  if (!options_.terminal) {
    fmt::print(options_.out, "{}\n", words);
  } else {
    constexpr size_t kLongest = 20, kShortest = 5, kBrackets = 3;
    const size_t width = columns() - 1, used = words.size() + kBrackets;
    const size_t length = std::min(kLongest, width > used ? width - used : 0);
    const double part = total_ > 0 ? static_cast<double>(done_) / static_cast<double>(total_) : 1;
    const auto filled =
        static_cast<size_t>(static_cast<double>(length) * std::clamp(part, 0.0, 1.0));
    if (length >= kShortest && total_ > 0)
      words = "[" + std::string(filled, '#') + std::string(length - filled, '.') + "] " + words;
    if (words.size() > width) words = words.substr(0, std::min(words.rfind("  ", width), width));
    fmt::print(options_.out, "\r{}\x1b[K", words);
    bar_shown_ = true;
  }
  std::fflush(options_.out);
  stale_ = false;
  drawn_at_ = options_.clock();
}

std::string Progress::duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

void PartsProgress::update(const std::string& part, int64_t done, int64_t total,
                           const std::string& unit) {
  if (!bar_ || part != part_) {
    finish();
    Progress::Options options = Progress::from_environment();
    options.unit = unit;
    part_ = part;
    bar_.emplace(part, 0, total, options);
  }
  bar_->expect(total);
  bar_->update(done);
}

void PartsProgress::line(const std::string& text) {
  if (bar_) return bar_->line(text);
  fmt::print(stderr, "{}\n", text);
}

void PartsProgress::finish() { bar_.reset(); }

}  // namespace quintet
