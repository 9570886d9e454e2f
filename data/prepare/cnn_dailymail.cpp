// CNN/DailyMail: stories by publisher, and lists of addresses that say to which split a story belongs. Source of the forms:
// tfds 4.9, summarization/cnn_dailymail.py.
#include <algorithm>
#include <boost/uuid/detail/sha1.hpp>
#include <set>

#include "data/metrics/text.h"
#include "data/prepare/prepare.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;

/// The lines of a file without white space around them.
std::vector<std::string> stripped_lines(const fs::path& file) {
  const std::string bytes = read_file(file);
  QT_CHECK_AS(ExitCode::kData, find_bad_utf8(bytes) == std::string::npos, "{}: is not UTF-8",
              file.string());
  std::vector<std::string> lines;
  for (std::string_view rest = bytes; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    lines.push_back(metrics::utf8(metrics::strip(metrics::code_points(rest.substr(0, end)))));
    rest.remove_prefix(std::min(rest.size(), end + 1));
  }
  return lines;
}

std::string sha1_hex(const std::string& text) {
  boost::uuids::detail::sha1 hash;
  hash.process_bytes(text.data(), text.size());
  unsigned int digest[5];
  hash.get_digest(digest);
  std::string hex;
  for (const unsigned int word : digest) hex += fmt::format("{:08x}", word);
  return hex;
}

/// Lines that end without one of these, captions mostly, would run into the next sentence.
std::string with_full_stop(const std::string& line) {
  constexpr std::string_view kEnds[] = {".", "!", "?", "'", "`", "\"", ")", "\u2019", "\u201d"};
  const bool ends =
      std::ranges::any_of(kEnds, [&](std::string_view end) { return line.ends_with(end); });
  return line.empty() || ends || line.find("@highlight") != std::string::npos ? line : line + ".";
}

void add_story(const fs::path& file, const std::string& publisher, const TfdsWriter::Add& add) {
  std::string article, highlights;
  bool is_highlight = false;  // what comes after a line @highlight
  for (const std::string& raw : stripped_lines(file)) {
    const std::string line = with_full_stop(raw);
    if (line.empty()) continue;
    if (line.starts_with("@highlight")) {
      is_highlight = true;
    } else if (is_highlight) {
      highlights += (highlights.empty() ? "" : "\n") + line;
    } else {
      article += (article.empty() ? "" : " ") + line;
    }
  }
  if (article.empty() || highlights.empty()) return;
  const std::string name = file.filename().string();
  Example example;
  example.set("article", article);
  example.set("highlights", highlights);
  example.set("id", name.ends_with(".story") ? name.substr(0, name.size() - 6) : name);
  example.set("publisher", publisher);
  add(name, example);
}

void generate(const fs::path& from, const std::string& list, const TfdsWriter::Add& add) {
  std::set<std::string> wanted;
  for (const std::string& address : stripped_lines(archive_file(from, "url_lists", list)))
    wanted.insert(sha1_hex(address));
  for (const auto& [publisher, folder] : {std::pair("cnn", "cnn"), std::pair("dm", "dailymail")}) {
    const fs::path stories = archive_file(from, folder, "stories");
    for (const std::string& name : names_in(stories))
      if (wanted.contains(name.substr(0, name.find(".story"))))
        add_story(stories / name, publisher, add);
  }
}

}  // namespace

std::vector<ArchiveDataset> cnn_dailymail_datasets() {
  ArchiveDataset made{
      .dataset = {.name = "cnn_dailymail",
                  .config = "",
                  .version = "3.4.0",
                  .features = tfds::dict({{"article", tfds::text()},
                                          {"highlights", tfds::text()},
                                          {"id", tfds::text()},
                                          {"publisher", tfds::text()}})},
      .older_versions = {},
      .files =
          "cnn/stories/*.story, dailymail/stories/*.story, url_lists/all_train.txt, "
          "all_val.txt, all_test.txt",
      .splits = {}};
  for (const auto& [split, list] :
       {std::pair("train", "all_train.txt"), std::pair("validation", "all_val.txt"),
        std::pair("test", "all_test.txt")})
    made.splits.push_back({split, [list](const fs::path& from, const TfdsWriter::Add& add) {
                             generate(from, list, add);
                           }});
  return {made};
}

}  // namespace quintet::data
