#include "runtime/gin/registry/builtins.h"

#include "runtime/gin/registry/registry.h"

namespace quintet::gin {
namespace {

/// Python's `var1 + var2` for the types that a gin file can hold.
Value add_values(const Arguments& a) {
  const Value x = a.value("var1"), y = a.value("var2");
  if (const std::string* text = x.get_if<std::string>()) return *text + a.get<std::string>("var2");
  if (const List* list = x.get_if<List>()) {
    List out = *list;
    const auto more = a.get<std::vector<Value>>("var2");
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  if (x.get_if<int64_t>() != nullptr && y.get_if<int64_t>() != nullptr)
    return a.get<int64_t>("var1") + a.get<int64_t>("var2");
  return a.get<double>("var1") + a.get<double>("var2");
}

bool truth(const Value& v) {
  if (const bool* b = v.get_if<bool>()) return *b;
  if (const int64_t* i = v.get_if<int64_t>()) return *i != 0;
  if (const double* d = v.get_if<double>()) return *d != 0;
  if (const std::string* text = v.get_if<std::string>()) return !text->empty();
  if (const Bytes* bytes = v.get_if<Bytes>()) return !bytes->data.empty();
  if (const Dict* dict = v.get_if<Dict>()) return !dict->items.empty();
  if (const std::vector<Value>* items = sequence(v)) return !items->empty();
  return !v.is_none();
}

/// str.split(separator, maxsplit), or one element of it.
Value split_text(const Arguments& a) {
  const auto text = a.get<std::string>("text"), separator = a.get<std::string>("separator");
  if (separator.empty())
    conversion_error(a.where("separator"), "a string that is not empty", a.value("separator"));
  int64_t left = a.get<int64_t>("maxsplit");
  List parts;
  size_t begin = 0;
  for (size_t end; left != 0 && (end = text.find(separator, begin)) != std::string::npos; --left) {
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  parts.emplace_back(text.substr(begin));
  const auto index = a.get<std::optional<int64_t>>("index");
  if (!index) return parts;
  const auto size = static_cast<int64_t>(parts.size());
  const int64_t i = *index < 0 ? *index + size : *index;
  if (i < 0 || i >= size)
    conversion_error(a.where("index"), "an index into " + Value(parts).repr(), a.value("index"));
  return parts[static_cast<size_t>(i)];
}

}  // namespace

void register_builtins(Registry& r) {
  r.add_constant(kRequiredName, Macro{kRequiredName});
  r.add(kMacroName, {"value"}, [](const Arguments& a) { return a.value("value"); });
  r.add(kSingletonName, {"constructor"},
        [](const Arguments& a) { return a.get<Callable>("constructor").singleton(); });
  r.add("t5x.gin_utils.sum_fn", {"var1", "var2"}, add_values);
  r.add("t5x.gin_utils.bool_fn", {"var1"},
        [](const Arguments& a) -> Value { return truth(a.value("var1")); });
  r.add("t5x.gin_utils.string_split_fn",
        {"text", "separator", {"maxsplit", -1}, {"index", nullptr}}, split_text);
}

}  // namespace quintet::gin
