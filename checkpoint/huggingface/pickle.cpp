#include "checkpoint/huggingface/pickle.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/base/check.h"

namespace quintet::huggingface {
namespace {

// Operations by the letters of Python's pickletools.
constexpr uint8_t kMark = '(', kStop = '.', kPop = '0', kBinfloat = 'G', kBinint = 'J',
                  kBinint1 = 'K', kBinint2 = 'M', kNone = 'N', kBinpersid = 'Q', kReduce = 'R',
                  kShortBinstring = 'U', kBinunicode = 'X', kEmptyList = ']', kAppend = 'a',
                  kBuild = 'b', kGlobal = 'c', kAppends = 'e', kBinget = 'h', kLongBinget = 'j',
                  kBinput = 'q', kLongBinput = 'r', kSetitem = 's', kTuple = 't', kSetitems = 'u',
                  kEmptyDict = '}', kEmptyTuple = ')', kProto = 0x80, kTuple1 = 0x85,
                  kTuple2 = 0x86, kTuple3 = 0x87, kNewtrue = 0x88, kNewfalse = 0x89, kLong1 = 0x8a,
                  kShortBinunicode = 0x8c, kBinunicode8 = 0x8d, kStackGlobal = 0x93,
                  kMemoize = 0x94, kFrame = 0x95;
constexpr uint32_t kNothing = std::numeric_limits<uint32_t>::max();  // a memo's free place

}  // namespace

Pickle::Pickle(std::span<const std::byte> bytes, std::string where,
               std::vector<std::string> globals)
    : bytes_(bytes), where_(std::move(where)), globals_(std::move(globals)) {}

void Pickle::refuse(const std::string& what) const {
  fail(ExitCode::kData, "{}: pickle, byte {}: {}", where_, at_, what);
}

std::string_view Pickle::take(size_t bytes) {
  if (bytes > bytes_.size() - at_) refuse("ends here; the file is cut short or damaged");
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, bytes);
  at_ += bytes;
  return text;
}

std::string_view Pickle::line() {
  const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + at_;
  const auto* end = static_cast<const char*>(std::memchr(begin, '\n', bytes_.size() - at_));
  if (end == nullptr) refuse("a name has no end; the file is cut short or damaged");
  return take(static_cast<size_t>(end - begin) + 1).substr(0, static_cast<size_t>(end - begin));
}

template <typename T>
T Pickle::number() {
  T value;
  std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
  return value;
}

uint32_t Pickle::push(PickleValue value) {
  // What tensors need is a few dozen values each, and each tensor is some hundred bytes at least: more is
  // an attack on memory.
  if (values_.size() > 100'000 + bytes_.size() / 256) refuse("more values than tensors need");
  values_.push_back(std::move(value));
  stack_.push_back(static_cast<uint32_t>(values_.size() - 1));
  return stack_.back();
}

uint32_t Pickle::pop() {
  if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size()))
    refuse("takes a value that is not there; the file is damaged");
  const uint32_t top = stack_.back();
  stack_.pop_back();
  return top;
}

std::vector<uint32_t> Pickle::pop_to_mark() {
  if (marks_.empty()) refuse("takes values from a mark that is not there; the file is damaged");
  const auto first = stack_.begin() + static_cast<int64_t>(marks_.back());
  std::vector<uint32_t> items(first, stack_.end());
  stack_.erase(first, stack_.end());
  marks_.pop_back();
  return items;
}

const PickleValue& Pickle::load() {
  values_.clear();
  stack_.clear();
  memo_.clear();
  marks_.clear();
  names_.clear();
  names_.reserve(globals_.size() + 64);  // the views into it stay
  stopped_ = false;
  references_ = 0;
  started_ = at_;
  while (!stopped_) step(number<uint8_t>());
  const uint32_t top = pop();
  if (!stack_.empty() || !marks_.empty()) refuse("leaves values behind; the file is damaged");
  return values_[top];
}

void Pickle::step(uint8_t operation) {
  if (operation == kStop) {
    stopped_ = true;
    return;
  }
  if (push_constant(operation) || push_text(operation) || build(operation) || memorize(operation))
    return;
  refuse(
      fmt::format("operation 0x{:02x} is not one that torch.save writes for tensors", operation));
}

bool Pickle::push_constant(uint8_t operation) {
  const auto integer = [&](int64_t value) { push({.kind = Kind::integer, .integer = value}); };
  switch (operation) {
    case kProto:
      if (const auto version = number<uint8_t>(); version > 5)
        refuse(fmt::format("protocol {} is not known", version));
      return true;
    case kFrame:
      number<uint64_t>();
      return true;
    case kNone:
      push({});
      return true;
    case kNewtrue:
    case kNewfalse:
      push({.kind = Kind::boolean, .integer = operation == kNewtrue ? 1 : 0});
      return true;
    case kBinint:
      integer(number<int32_t>());
      return true;
    case kBinint1:
      integer(number<uint8_t>());
      return true;
    case kBinint2:
      integer(number<uint16_t>());
      return true;
    case kBinfloat:
      take(8);
      push({.kind = Kind::real});
      return true;
    case kLong1: {
      const std::string_view bytes = take(number<uint8_t>());
      int64_t value = !bytes.empty() && (bytes.back() & 0x80) != 0 ? -1 : 0;
      if (bytes.size() <= 8) std::memcpy(&value, bytes.data(), bytes.size());
      // The magic number of the older form is longer than any size.
      push({.kind = bytes.size() <= 8 ? Kind::integer : Kind::real, .integer = value});
      return true;
    }
    default:
      return false;
  }
}

bool Pickle::push_text(uint8_t operation) {
  size_t bytes = 0;
  if (operation == kShortBinunicode || operation == kShortBinstring)
    bytes = number<uint8_t>();
  else if (operation == kBinunicode)
    bytes = number<uint32_t>();
  else if (operation == kBinunicode8)
    bytes = number<uint64_t>();
  else
    return false;
  push({.kind = Kind::text, .integer = 0, .text = take(bytes), .items = {}});
  return true;
}

void Pickle::push_global(std::string_view module, std::string_view name) {
  std::string full = fmt::format("{}.{}", module, name);
  const bool is_storage =
      module == "torch" && name.ends_with("Storage") &&
      std::find(globals_.begin(), globals_.end(), "torch.*Storage") != globals_.end();
  if (!is_storage && std::find(globals_.begin(), globals_.end(), full) == globals_.end())
    refuse(fmt::format(
        "names {}, which is not for tensors; such files may run programs and are refused",
        full.substr(0, 200)));
  auto known = std::find(names_.begin(), names_.end(), full);
  if (known == names_.end()) {
    if (names_.size() == names_.capacity()) refuse("more kinds of storages than there are");
    names_.push_back(std::move(full));
    known = names_.end() - 1;
  }
  push({.kind = Kind::global, .integer = 0, .text = *known, .items = {}});
}

/// Adds to a list (each = 1) or a dictionary (each = 2).
void Pickle::append(bool many, size_t each) {
  std::vector<uint32_t> items;
  if (many) {
    items = pop_to_mark();
  } else {
    for (size_t i = 0; i < each; ++i) items.insert(items.begin(), pop());
  }
  const uint32_t top = pop();
  stack_.push_back(top);
  PickleValue& to = values_[top];
  if (to.kind != (each == 1 ? Kind::list : Kind::dict) || items.size() % each != 0)
    refuse("adds to what is no list or dictionary; the file is damaged");
  to.items.insert(to.items.end(), items.begin(), items.end());
}

void Pickle::call() {
  const uint32_t arguments = pop(), callee = pop();
  if (values_[callee].kind != Kind::global || values_[arguments].kind != Kind::tuple)
    refuse("calls what is no function; the file is damaged");
  if (values_[callee].text == "collections.OrderedDict") {
    if (!values_[arguments].items.empty()) refuse("gives a dictionary its items in a call");
    push({.kind = Kind::dict});
    return;
  }
  push({.kind = Kind::call, .integer = 0, .text = {}, .items = {callee, arguments}});
}

void Pickle::push_tuple(uint8_t operation) {
  PickleValue value{.kind = Kind::tuple};
  if (operation == kTuple) {
    value.items = pop_to_mark();
  } else {
    const size_t size = operation == kEmptyTuple ? 0 : size_t{operation} - kTuple1 + 1;
    for (size_t i = 0; i < size; ++i) value.items.insert(value.items.begin(), pop());
  }
  push(std::move(value));
}

bool Pickle::build(uint8_t operation) {
  switch (operation) {
    case kMark:
      marks_.push_back(stack_.size());
      if (marks_.size() > 1000) refuse("is nested too deeply");
      return true;
    case kPop:
      pop();
      return true;
    case kEmptyDict:
      push({.kind = Kind::dict});
      return true;
    case kEmptyList:
      push({.kind = Kind::list});
      return true;
    case kEmptyTuple:
    case kTuple1:
    case kTuple2:
    case kTuple3:
    case kTuple:
      push_tuple(operation);
      return true;
    case kAppend:
    case kAppends:
      append(operation == kAppends, 1);
      return true;
    case kSetitem:
    case kSetitems:
      append(operation == kSetitems, 2);
      return true;
    case kGlobal: {
      const std::string_view module = line();
      push_global(module, line());
      return true;
    }
    case kStackGlobal: {
      const uint32_t name = pop(), module = pop();
      push_global(text(values_[module]), text(values_[name]));
      return true;
    }
    case kReduce:
      call();
      return true;
    case kBuild:  // attributes of a dictionary or tensor: notes of PyTorch's modules
      pop();
      return true;
    case kBinpersid: {
      PickleValue value{.kind = Kind::persistent};
      value.items = {pop()};
      push(std::move(value));
      return true;
    }
    default:
      return false;
  }
}

void Pickle::check_memo(size_t index) const {
  if (index > values_.size()) refuse("remembers a value by a number that is too large");
}

bool Pickle::memorize(uint8_t operation) {
  size_t index = 0;
  if (operation == kBinput || operation == kBinget)
    index = number<uint8_t>();
  else if (operation == kLongBinput || operation == kLongBinget)
    index = number<uint32_t>();
  else if (operation == kMemoize)
    index = memo_.size();
  else
    return false;
  if (operation == kBinget || operation == kLongBinget) {
    if (index >= memo_.size() || memo_[index] == kNothing)
      refuse("asks for a value that was not remembered; the file is damaged");
    if (++references_ > 1'000'000 + bytes_.size() / 16) refuse("more references than tensors need");
    stack_.push_back(memo_[index]);
    return true;
  }
  check_memo(index);
  const uint32_t top = pop();
  stack_.push_back(top);
  if (index >= memo_.size()) memo_.resize(index + 1, kNothing);
  memo_[index] = top;
  return true;
}

const PickleValue& Pickle::item(const PickleValue& of, size_t i) const {
  QT_CHECK_AS(ExitCode::kData, i < of.items.size(), "{}: pickle: a value has {} parts, expected {}",
              where_, of.items.size(), i + 1);
  return values_.at(of.items[i]);
}

int64_t Pickle::integer(const PickleValue& value) const {
  QT_CHECK_AS(ExitCode::kData, value.kind == Kind::integer, "{}: pickle: expected a whole number",
              where_);
  return value.integer;
}

std::string_view Pickle::text(const PickleValue& value) const {
  QT_CHECK_AS(ExitCode::kData, value.kind == Kind::text, "{}: pickle: expected a text", where_);
  return value.text;
}

std::vector<int64_t> Pickle::integers(const PickleValue& tuple) const {
  QT_CHECK_AS(ExitCode::kData, tuple.kind == Kind::tuple && tuple.items.size() <= 8,
              "{}: pickle: expected a tuple of up to eight sizes", where_);
  std::vector<int64_t> values;
  for (const uint32_t index : tuple.items) values.push_back(integer(values_[index]));
  return values;
}

}  // namespace quintet::huggingface
