#include "data/prepare/parallel_text.h"

#include <re2/re2.h>

#include <charconv>
#include <iterator>
#include <optional>
#include <sstream>

#include "data/metrics/text.h"
#include "data/sources/input_file.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// The bytes of a file, one after the other.
class Bytes {
 public:
  explicit Bytes(const std::string& path) : file_(path) {}
  /// -1 at the end.
  int next() {
    if (at_ == block_.size()) {
      block_.resize(InputFile::kBlockBytes);
      block_.resize(file_.read(block_.data(), block_.size(), read_));
      read_ += std::ssize(block_);
      at_ = 0;
      if (block_.empty()) return -1;
    }
    return static_cast<unsigned char>(block_[at_++]);
  }
  /// Up to a newline, without it; nothing at the end.
  std::optional<std::string> line() {
    std::string text;
    int byte = next();
    if (byte < 0) return std::nullopt;
    for (; byte >= 0 && byte != '\n'; byte = next()) text += static_cast<char>(byte);
    return text;
  }
  const std::string& path() const { return file_.path(); }

 private:
  InputFile file_;
  std::string block_;
  size_t at_ = 0;
  int64_t read_ = 0;
};

void check_utf8(const std::string& text, const std::string& path, const std::string& place) {
  QT_CHECK_AS(ExitCode::kData, find_bad_utf8(text) == std::string::npos, "{}: {}: is not UTF-8",
              path, place);
}

/// Calls `take` with each line as Python's text files have them: \r and \r\n end lines, too.
void each_text_line(const std::string& path,
                    const std::function<void(int64_t, std::string)>& take) {
  Bytes bytes(path);
  int64_t number = 0;
  while (auto line = bytes.line()) {
    check_utf8(*line, path, fmt::format("line {}", number + 1));
    if (line->ends_with('\r')) line->pop_back();
    for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
      end = line->find('\r', begin);
      take(number++, line->substr(begin, end == std::string::npos ? end : end - begin));
    }
  }
}

std::string stripped(std::string_view text) {
  return metrics::utf8(metrics::strip(metrics::code_points(text)));
}

std::vector<std::string> columns_of(const std::string& line) {
  std::vector<std::string> columns;
  std::istringstream text(line + "\t");
  for (std::string column; std::getline(text, column, '\t');) columns.push_back(column);
  return columns;
}

/// The segments of a file of SGML, which need not be well-formed.
std::vector<std::string> segments(const std::string& path) {
  static const re2::RE2 segment("<seg id=\"\\d+\">(.*)</seg>");
  std::vector<std::string> found;
  each_text_line(path, [&](int64_t, const std::string& line) {
    std::string text;
    re2::StringPiece rest(line);
    if (re2::RE2::Consume(&rest, segment, &text)) found.push_back(std::move(text));
  });
  return found;
}

/// The lines of a file, or the segments of one of SGML.
class Lines {
 public:
  explicit Lines(const std::string& path) : is_sgm_(path.ends_with(".sgm")) {
    if (is_sgm_)
      segments_ = segments(path);
    else
      bytes_.emplace(path);
  }
  std::optional<std::string> next() {
    if (!is_sgm_) return bytes_->line();
    if (at_ == segments_.size()) return std::nullopt;
    return segments_[at_++];
  }

 private:
  bool is_sgm_;
  std::optional<Bytes> bytes_;
  std::vector<std::string> segments_;
  size_t at_ = 0;
};

/// "XX" and "YY" of NAME.XX-YY[.tsv][.gz].
std::pair<std::string, std::string> languages_of(const std::string& path) {
  std::string first, second;
  QT_CHECK_AS(ExitCode::kData,
              re2::RE2::FullMatch(path, ".*\\.([a-z][a-z])-([a-z][a-z])(?:\\.tsv)?(?:\\.gz)?",
                                  &first, &second),
              "{}: expected the languages in its name, as in europarl-v9.de-en.tsv", path);
  return {first, second};
}

/// Elements of an XML file one after the other: no more of XML than TMX files have.
class Tmx {
 public:
  Tmx(const std::string& path, const TakeSentences& take) : bytes_(path), take_(take) {}

  void read() {
    for (int byte = bytes_.next(); byte >= 0; byte = bytes_.next()) {
      if (byte == '<')
        markup();
      else if (in_text_)
        text_ += byte == '&' ? entity() : std::string(1, static_cast<char>(byte));
    }
    check(depth_ == 0, "ends within an element");
  }

 private:
  void check(bool good, const std::string& what) const {
    QT_CHECK_AS(ExitCode::kData, good, "{}: {} (after {} elements)", bytes_.path(), what, ended_);
  }
  /// Up to `end`, without it; at most `most` bytes.
  std::string up_to(std::string_view end, size_t most = std::string::npos) {
    std::string text;
    while (!text.ends_with(end)) {
      const int byte = bytes_.next();
      check(byte >= 0 && text.size() < most,
            fmt::format("has no '{}'{}", end, text.size() < most ? "" : " after '" + text + "'"));
      text += static_cast<char>(byte);
    }
    return text.substr(0, text.size() - end.size());
  }
  std::string entity() {
    const std::string name = up_to(";", 12);  // the longest known one is &#x10FFFF;
    for (const auto& [known, text] :
         {std::pair("amp", "&"), std::pair("lt", "<"), std::pair("gt", ">"),
          std::pair("quot", "\""), std::pair("apos", "'")})
      if (name == known) return text;
    check(name.starts_with('#'), fmt::format("has an unknown entity '&{};'", name));
    const bool hex = name.starts_with("#x");
    uint32_t code = 0;
    const char* begin = name.data() + (hex ? 2 : 1);
    const auto [end, error] =
        std::from_chars(begin, name.data() + name.size(), code, hex ? 16 : 10);
    check(error == std::errc() && code <= 0x10FFFF && end == name.data() + name.size(),
          fmt::format("has an unknown entity '&{};'", name));
    return metrics::utf8(std::u32string(1, static_cast<char32_t>(code)));
  }
  void markup() {
    std::string tag;
    for (int byte = bytes_.next(); byte != '>'; byte = bytes_.next()) {
      check(byte >= 0, "ends within a tag");
      tag += static_cast<char>(byte);
      if (tag == "!--") return void(up_to("-->"));
      if (tag == "![CDATA[") {
        const std::string text = up_to("]]>");
        if (in_text_) text_ += text;
        return;
      }
    }
    if (tag.starts_with('?') || tag.starts_with('!')) return;
    if (tag.starts_with('/')) return end(tag.substr(1));
    const bool is_empty = tag.ends_with('/');
    if (is_empty) tag.pop_back();
    const std::string name = tag.substr(0, tag.find_first_of(" \t\r\n"));
    start(name, tag);
    if (is_empty) end(name);
  }
  void start(const std::string& name, const std::string& tag) {
    ++depth_;
    in_text_ = name == "seg";  // the text before the first element in it
    if (name == "seg") text_.clear();
    if (name == "tu") sentences_.clear();
    if (name != "tuv") return;
    language_.clear();
    check(re2::RE2::PartialMatch(tag, "\\sxml:lang\\s*=\\s*[\"']([^\"']*)[\"']", &language_),
          "has a tuv without xml:lang");
  }
  void end(std::string name) {
    name.erase(name.find_last_not_of(" \t\r\n") + 1);
    check(--depth_ >= 0, fmt::format("has no element for '</{}>'", name));
    if (name == "seg") {
      check_utf8(text_, bytes_.path(), fmt::format("element {}", ended_));
      re2::RE2::GlobalReplace(&text_, "\r\n?", "\n");
      sentences_[language_] = text_;
    }
    in_text_ = false;
    if (name == "tu") take_(std::to_string(ended_), sentences_);
    ++ended_;
  }

  Bytes bytes_;
  const TakeSentences& take_;
  Sentences sentences_;
  std::string language_, text_;
  bool in_text_ = false;
  int64_t depth_ = 0, ended_ = 0;  // elements; TFDS's key of a unit is how many ended before it
};

}  // namespace

void read_parallel(const std::string& first, const std::string& second,
                   const std::pair<std::string, std::string>& languages, const std::string& prefix,
                   const TakeSentences& take) {
  Lines one(first), other(second);
  for (int64_t number = 0;; ++number) {
    const auto a = one.next(), b = other.next();
    QT_CHECK_AS(ExitCode::kData, a.has_value() == b.has_value(),
                "{} and {}: one has {} lines, the other more", first, second, number);
    if (!a) return;
    check_utf8(*a, first, fmt::format("line {}", number + 1));
    check_utf8(*b, second, fmt::format("line {}", number + 1));
    take(fmt::format("{}{}", prefix, number), {{languages.first, *a}, {languages.second, *b}});
  }
}

void read_columns(const std::string& file, const std::string& separator, const TakeSentences& take,
                  std::optional<std::pair<std::string, std::string>> given) {
  const auto languages = given ? *given : languages_of(file);
  each_text_line(file, [&](int64_t number, const std::string& line) {
    const size_t middle = line.find(separator);
    const bool two = middle != std::string::npos &&
                     line.find(separator, middle + separator.size()) == std::string::npos;
    QT_CHECK_AS(ExitCode::kData, two || separator == "\t",
                "{}:{}: expected two texts and '{}' between", file, number + 1, separator);
    if (two)
      take(
          std::to_string(number),
          {{languages.first, stripped(std::string_view(line).substr(0, middle))},
           {languages.second, stripped(std::string_view(line).substr(middle + separator.size()))}});
  });
}

void read_hindencorp(const std::string& file, const TakeSentences& take) {
  each_text_line(file, [&](int64_t number, const std::string& line) {
    const std::vector<std::string> columns = columns_of(line);
    if (columns.size() == 5)
      take(std::to_string(number), {{"en", stripped(columns[3])}, {"hi", stripped(columns[4])}});
  });
}

void read_czeng(const std::string& file, const std::set<std::string>& left_out,
                const TakeSentences& take) {
  static const re2::RE2 block("[^-]+-b(\\d+)-\\d\\d[tde]");
  const std::string name = file.substr(file.rfind('/') + 1);
  Bytes bytes(file);
  std::string found;
  for (int64_t number = 0; auto line = bytes.line(); ++number) {
    check_utf8(*line, file, fmt::format("line {}", number + 1));
    if (stripped(*line).empty()) continue;
    const std::vector<std::string> columns = columns_of(*line);
    QT_CHECK_AS(ExitCode::kData, columns.size() == 4,
                "{}:{}: {} columns, expected an id, a number, Czech and English", file, number + 1,
                columns.size());
    re2::StringPiece id(columns[0]);
    if (re2::RE2::Consume(&id, block, &found) && left_out.contains(found)) continue;
    take(fmt::format("{}/{}", name, number),
         {{"cs", stripped(columns[2])}, {"en", stripped(columns[3])}});
  }
}

std::set<std::string> czeng17_left_out(const std::string& script) {
  std::string text, list;
  each_text_line(script, [&](int64_t, const std::string& line) { text += line + "\n"; });
  QT_CHECK_AS(ExitCode::kData, re2::RE2::PartialMatch(text, "qw\\{([\\s\\d]*)\\}", &list),
              "{}: has no list qw{{..}} of blocks", script);
  std::istringstream blocks(list);
  return {std::istream_iterator<std::string>(blocks), {}};
}

void read_tmx(const std::string& file, const TakeSentences& take) { Tmx(file, take).read(); }

}  // namespace quintet::data
