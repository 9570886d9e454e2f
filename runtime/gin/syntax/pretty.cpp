#include "runtime/gin/syntax/pretty.h"

#include <algorithm>

#include "runtime/gin/syntax/unicode.h"

namespace quintet::gin {
namespace {

using Items = std::vector<std::pair<const Value*, const Value*>>;

double as_number(const Value& v) {
  if (const bool* b = v.get_if<bool>()) return *b ? 1 : 0;
  if (const int64_t* i = v.get_if<int64_t>()) return static_cast<double>(*i);
  return *v.get_if<double>();
}

// Python compares numbers with each other; other types only with their own kind, and pprint falls
// back to the names of the types.
std::string type_rank(const Value& v) {
  constexpr std::string_view kNames[] = {"NoneType", "int", "int",   "int",      "int",
                                         "complex",  "str", "bytes", "list",     "tuple",
                                         "dict",     "ref", "ref",   "function", "object"};
  return std::string(kNames[v.data().index()]);
}

bool key_less(const Value& a, const Value& b) {
  const std::string rank_a = type_rank(a), rank_b = type_rank(b);
  if (rank_a != rank_b) return rank_a < rank_b;
  if (rank_a == "int" && a.get_if<BigInt>() == nullptr && b.get_if<BigInt>() == nullptr)
    return as_number(a) < as_number(b);
  if (const std::string* text = a.get_if<std::string>()) return *text < *b.get_if<std::string>();
  if (const Bytes* bytes = a.get_if<Bytes>()) return bytes->data < b.get_if<Bytes>()->data;
  if (const Tuple* tuple = a.get_if<Tuple>()) {
    const Tuple* other = b.get_if<Tuple>();
    return std::lexicographical_compare(tuple->items.begin(), tuple->items.end(),
                                        other->items.begin(), other->items.end(), key_less);
  }
  return a.repr() < b.repr();
}

Items sorted_items(const Dict& dict) {
  Items items;
  for (const auto& [k, v] : dict.items) items.emplace_back(&k, &v);
  std::stable_sort(items.begin(), items.end(),
                   [](const auto& a, const auto& b) { return key_less(*a.first, *b.first); });
  return items;
}

class Printer {
 public:
  explicit Printer(size_t width) : width_(static_cast<long>(width)) {}

  // indent: columns before the value; allowance: columns to keep free behind it; level: depth, 1
  // outermost.
  void print(const Value& v, long indent, long allowance, int level) {
    const std::string flat = sorted_repr(v);
    if (length(flat) <= width_ - indent - allowance) {
      out += flat;
    } else if (const Dict* dict = v.get_if<Dict>()) {
      print_dict(*dict, indent, allowance + 1, level);
    } else if (const List* list = v.get_if<List>()) {
      out += '[';
      print_items(*list, indent, allowance + 1, level);
      out += ']';
    } else if (const Tuple* tuple = v.get_if<Tuple>()) {
      const std::string end = tuple->items.size() == 1 ? ",)" : ")";
      out += '(';
      print_items(tuple->items, indent, allowance + static_cast<long>(end.size()), level);
      out += end;
    } else if (const std::string* text = v.get_if<std::string>()) {
      print_text(*text, indent, allowance, level);
    } else if (const Bytes* bytes = v.get_if<Bytes>()) {
      print_bytes(bytes->data, indent, allowance, level);
    } else {
      out += flat;
    }
  }
  std::string out;

 private:
  static long length(std::string_view text) { return static_cast<long>(count_code_points(text)); }
  void new_line(long indent) { out += '\n' + std::string(static_cast<size_t>(indent), ' '); }

  void print_dict(const Dict& dict, long indent, long allowance, int level) {
    out += '{';
    const Items items = sorted_items(dict);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) {
        out += ',';
        new_line(indent + 1);
      }
      const std::string key = sorted_repr(*items[i].first);
      out += key + ": ";
      print(*items[i].second, indent + 1 + length(key) + 2, i + 1 == items.size() ? allowance : 1,
            level + 1);
    }
    out += '}';
  }

  void print_items(const std::vector<Value>& items, long indent, long allowance, int level) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) {
        out += ',';
        new_line(indent + 1);
      }
      print(items[i], indent + 1, i + 1 == items.size() ? allowance : 1, level + 1);
    }
  }

  void put_pieces(const std::vector<std::string>& pieces, long indent, bool parentheses) {
    if (parentheses) out += '(';
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i > 0) new_line(indent);
      out += pieces[i];
    }
    if (parentheses) out += ')';
  }

  void print_text(const std::string& text, long indent, long allowance, int level) {
    if (level == 1) {
      ++indent;
      ++allowance;
    }
    if (text.empty()) out += "''";
    const std::vector<std::string> lines = cut_lines(text);
    std::vector<std::string> pieces;
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool is_last = i + 1 == lines.size();
      const long room = width_ - indent;
      if (length(str_repr(lines[i])) <= room - (is_last ? allowance : 0)) {
        pieces.push_back(str_repr(lines[i]));
        continue;
      }
      const std::vector<std::string> words = cut_words(lines[i]);
      std::string current;
      for (size_t j = 0; j < words.size(); ++j) {
        const long limit = is_last && j + 1 == words.size() ? room - allowance : room;
        if (length(str_repr(current + words[j])) > limit) {
          if (!current.empty()) pieces.push_back(str_repr(current));
          current = words[j];
        } else {
          current += words[j];
        }
      }
      if (!current.empty()) pieces.push_back(str_repr(current));
    }
    // A single piece that does not fit stands as it is.
    put_pieces(pieces, indent, level == 1 && pieces.size() > 1);
  }

  void print_bytes(const std::string& data, long indent, long allowance, int level) {
    if (data.size() <= 4) {
      out += bytes_repr(data);
      return;
    }
    if (level == 1) {
      ++indent;
      ++allowance;
    }
    long room = width_ - indent;
    const size_t last = data.size() / 4 * 4;
    std::vector<std::string> pieces;
    std::string current;
    for (size_t i = 0; i < data.size(); i += 4) {
      const std::string part = data.substr(i, 4);
      if (i == last) room -= allowance;
      if (length(bytes_repr(current + part)) > room) {
        if (!current.empty()) pieces.push_back(bytes_repr(current));
        current = part;
      } else {
        current += part;
      }
    }
    if (!current.empty()) pieces.push_back(bytes_repr(current));
    put_pieces(pieces, indent, level == 1);
  }

  static std::vector<std::string> cut_lines(std::string_view text) {
    std::vector<std::string> lines;
    size_t begin = 0;
    for (size_t i = 0; i < text.size();) {
      const char32_t c = next_code_point(text, i);
      if (!is_line_break(c)) continue;
      if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
      lines.emplace_back(text.substr(begin, i - begin));
      begin = i;
    }
    if (begin < text.size()) lines.emplace_back(text.substr(begin));
    return lines;
  }

  /// Words, each with the spaces behind it.
  static std::vector<std::string> cut_words(std::string_view line) {
    std::vector<std::string> words;
    size_t begin = 0;
    bool in_space = false;
    for (size_t i = 0; i < line.size();) {
      const size_t at = i;
      const bool space = is_space(next_code_point(line, i));
      if (in_space && !space) {
        words.emplace_back(line.substr(begin, at - begin));
        begin = at;
      }
      in_space = space;
    }
    if (begin < line.size()) words.emplace_back(line.substr(begin));
    return words;
  }

  long width_;
};

void append_sorted(std::string& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) out += (i > 0 ? ", " : "") + sorted_repr(items[i]);
}

}  // namespace

std::string sorted_repr(const Value& value) {
  std::string out;
  if (const List* list = value.get_if<List>()) {
    out = "[";
    append_sorted(out, *list);
    return out + "]";
  }
  if (const Tuple* tuple = value.get_if<Tuple>()) {
    out = "(";
    append_sorted(out, tuple->items);
    return out + (tuple->items.size() == 1 ? ",)" : ")");
  }
  const Dict* dict = value.get_if<Dict>();
  if (dict == nullptr) return value.repr();
  out = "{";
  for (const auto& [k, v] : sorted_items(*dict))
    out += (out.size() > 1 ? ", " : "") + sorted_repr(*k) + ": " + sorted_repr(*v);
  return out + "}";
}

std::string pretty(const Value& value, size_t width) {
  Printer printer(width);
  printer.print(value, 0, 0, 1);
  return printer.out;
}

}  // namespace quintet::gin
