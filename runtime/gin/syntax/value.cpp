#include "runtime/gin/syntax/value.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "runtime/gin/syntax/unicode.h"

namespace quintet::gin {
namespace {

constexpr size_t kMaxShown = 60;

template <typename... F>
struct Visitor : F... {
  using F::operator()...;
};
template <typename... F>
Visitor(F...) -> Visitor<F...>;

void append_items(std::string& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    out += items[i].repr();
  }
}

std::string tuple_repr(const std::vector<Value>& items) {
  std::string out = "(";
  append_items(out, items);
  return out + (items.size() == 1 ? ",)" : ")");
}

std::string dict_repr(const Dict& dict) {
  std::string out = "{";
  for (size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) out += ", ";
    out += dict.items[i].first.repr() + ": " + dict.items[i].second.repr();
  }
  return out + "}";
}

std::string complex_repr(const Complex& c) {
  std::string imag = float_repr(c.imag);
  if (imag.ends_with(".0")) imag.resize(imag.size() - 2);
  if (c.real == 0 && !std::signbit(c.real)) return imag + "j";
  std::string real = float_repr(c.real);
  if (real.ends_with(".0")) real.resize(real.size() - 2);
  return "(" + real + (std::signbit(c.imag) ? "" : "+") + imag + "j)";
}

std::string quote(std::string_view body, bool has_single, bool has_double) {
  const char q = has_single && !has_double ? '"' : '\'';
  std::string out(1, q);
  for (char c : body) {
    if (c == '\'' && q == '\'') out += '\\';
    out += c;
  }
  return out + q;
}

/// The part of repr() that str and bytes share; empty if c needs no escape.
std::string short_escape(char32_t c) {
  if (c == '\\') return "\\\\";
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  return {};
}

}  // namespace

Value::Value() = default;
Value::~Value() = default;
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::Value(bool v) : data_(v) {}
Value::Value(int v) : data_(int64_t{v}) {}
Value::Value(int64_t v) : data_(v) {}
Value::Value(double v) : data_(v) {}
Value::Value(const char* v) : data_(std::string(v)) {}
Value::Value(std::string v) : data_(std::move(v)) {}
Value::Value(std::string_view v) : data_(std::string(v)) {}
Value::Value(BigInt v) : data_(std::move(v)) {}
Value::Value(Complex v) : data_(v) {}
Value::Value(Bytes v) : data_(std::move(v)) {}
Value::Value(List v) : data_(std::move(v)) {}
Value::Value(Tuple v) : data_(std::move(v)) {}
Value::Value(Dict v) : data_(std::move(v)) {}
Value::Value(Reference v) : data_(std::move(v)) {}
Value::Value(Macro v) : data_(std::move(v)) {}
Value::Value(Callable v) : data_(std::move(v)) {}
Value::Value(Object v) : data_(std::move(v)) {}

std::string Location::str() const {
  if (file.empty()) return {};
  return line > 0 ? fmt::format("{}:{}", file, line) : file;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [k, v] : items)
    if (const std::string* text = k.get_if<std::string>(); text != nullptr && *text == key)
      return &v;
  return nullptr;
}

void Dict::set(Value key, Value value) {
  const std::string hash = dict_key(key);
  for (auto& [k, v] : items)
    if (dict_key(k) == hash) {
      v = std::move(value);
      return;
    }
  items.emplace_back(std::move(key), std::move(value));
}

std::string Reference::name() const {
  std::string out;
  for (const std::string& scope : scopes) out += scope + "/";
  return out + selector;
}

std::string type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? text.get() : type.name();
  const std::string prefix = "quintet::";
  for (size_t at; (at = name.find(prefix)) != std::string::npos;) name.erase(at, prefix.size());
  return name;
}

std::string float_repr(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, v, std::chars_format::scientific).ptr;
  const std::string text(buffer, end);
  const size_t e = text.find('e');
  const int power = std::stoi(text.substr(e + 1));
  if (power < -4 || power >= 16)
    return fmt::format("{}e{}{:02}", text.substr(0, e), power < 0 ? '-' : '+', std::abs(power));
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, v, std::chars_format::fixed).ptr;
  std::string out(buffer, fixed);
  return out.find('.') == std::string::npos ? out + ".0" : out;
}

std::string str_repr(std::string_view text) {
  std::string body;
  bool has_single = false, has_double = false;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = next_code_point(text, i);
    has_single |= c == '\'';
    has_double |= c == '"';
    if (std::string escape = short_escape(c); !escape.empty())
      body += escape;
    else if (is_printable(c))
      body += text.substr(begin, i - begin);
    else if (c < 0x100)
      body += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    else if (c < 0x10000)
      body += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    else
      body += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
  }
  return quote(body, has_single, has_double);
}

std::string bytes_repr(std::string_view data) {
  std::string body;
  for (char c : data) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::string escape = short_escape(byte); !escape.empty())
      body += escape;
    else if (byte >= 0x20 && byte < 0x7F)
      body += c;
    else
      body += fmt::format("\\x{:02x}", byte);
  }
  return "b" + quote(body, data.find('\'') != data.npos, data.find('"') != data.npos);
}

std::string Value::repr() const {
  return std::visit(
      Visitor{[](None) { return std::string("None"); },
              [](bool v) { return std::string(v ? "True" : "False"); },
              [](int64_t v) { return std::to_string(v); }, [](const BigInt& v) { return v.digits; },
              [](double v) { return float_repr(v); },
              [](const Complex& v) { return complex_repr(v); },
              [](const std::string& v) { return str_repr(v); },
              [](const Bytes& v) { return bytes_repr(v.data); },
              [](const List& v) {
                std::string out = "[";
                append_items(out, v);
                return out + "]";
              },
              [](const Tuple& v) { return tuple_repr(v.items); },
              [](const Dict& v) { return dict_repr(v); },
              [](const Reference& v) { return "@" + v.name() + (v.call ? "()" : ""); },
              [](const Macro& v) { return "%" + v.name; },
              [](const Callable& v) {
                std::string scopes;
                for (const std::string& s : v.scopes()) scopes += s + "/";
                return "<function " + scopes + v.name() + ">";
              },
              [](const Object& v) {
                return "<" + (v.maker.empty() ? type_name(*v.type) : v.maker) + " object>";
              }},
      data_);
}

std::string Value::describe() const {
  if (const Object* o = get_if<Object>())
    return o->maker.empty() ? "a " + type_name(*o->type)
                            : fmt::format("a {} made by {}", type_name(*o->type), o->maker);
  constexpr std::string_view kTypes[] = {"",        "bool",      "int",   "int",  "float",
                                         "complex", "str",       "bytes", "list", "tuple",
                                         "dict",    "reference", "macro", "",     "object"};
  std::string text = repr();
  if (text.size() > kMaxShown) {
    size_t cut = kMaxShown;
    while (cut > 0 && (text[cut] & 0xC0) == 0x80) --cut;
    text = text.substr(0, cut) + "...";
  }
  const std::string_view type = kTypes[data_.index()];
  return type.empty() ? text : fmt::format("{} {}", type, text);
}

bool Value::operator==(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  return std::visit(
      [&](const auto& a) {
        using T = std::remove_cvref_t<decltype(a)>;
        const T& b = *other.get_if<T>();
        if constexpr (std::is_same_v<T, double>)
          return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) ||
                 (std::isnan(a) && std::isnan(b));
        else if constexpr (std::is_same_v<T, Tuple> || std::is_same_v<T, Dict>)
          return a.items == b.items;
        else if constexpr (std::is_same_v<T, Reference>)
          return a.call == b.call && a.scopes == b.scopes &&
                 (a.target != nullptr || b.target != nullptr ? a.target == b.target
                                                             : a.selector == b.selector);
        else if constexpr (std::is_same_v<T, Callable>)
          return &a.target() == &b.target() && a.scopes() == b.scopes();
        else if constexpr (std::is_same_v<T, Object>)
          return a.data == b.data;
        else
          return a == b;
      },
      data_);
}

std::string dict_key(const Value& value) {
  return std::visit(
      Visitor{[](bool v) { return fmt::format("n{}", v ? 1 : 0); },
              [](int64_t v) { return fmt::format("n{}", v); },
              [](double v) {
                if (v == std::trunc(v) && std::abs(v) < 9e15)
                  return fmt::format("n{}", static_cast<int64_t>(v));
                return "f" + float_repr(v);
              },
              [](const std::string& v) { return "s" + v; },
              [](const Tuple& v) {
                std::string out = "(";
                for (const Value& item : v.items) {
                  const std::string key = dict_key(item);
                  if (key.empty()) return key;
                  out += fmt::format("{}:{}", key.size(), key);
                }
                return out;
              },
              [](const List&) { return std::string(); }, [](const Dict&) { return std::string(); },
              [&](const auto&) { return "r" + value.repr(); }},
      value.data());
}

}  // namespace quintet::gin
