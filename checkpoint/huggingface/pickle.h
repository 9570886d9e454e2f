#pragma once
// What a pickle says, without doing it: of Python's pickle machine the operations that build dictionaries,
// tuples, strings and numbers, and calls that are recorded and not made. A pickle that names a global which
// its reader does not list is refused by that name.
//
//   Pickle pickle(bytes, "pytorch_model.bin", {"collections.OrderedDict"});
//   const PickleValue& root = pickle.load();
//   pickle.items(root);   // keys and values by turns

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::huggingface {

/// A value; what it is made of lies with the pickle that it is from.
struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    real,
    text,
    tuple,
    list,
    dict,       // items: keys and values by turns; OrderedDict, too
    global,     // text: "module.name"
    call,       // items: the global, its arguments (a tuple)
    persistent  // items: the identifier
  };
  Kind kind = Kind::none;
  int64_t integer = 0;
  std::string_view text = {};
  std::vector<uint32_t> items = {};
};

class Pickle {
 public:
  /// `bytes` must outlive this; several pickles may follow one another in them. `globals`: those that may
  /// be named; "torch.*Storage" stands for all such names.
  Pickle(std::span<const std::byte> bytes, std::string where, std::vector<std::string> globals);

  /// The next pickle's value, until the next call. Throws ExitCode::kData naming the file and the byte for
  /// an operation or a global that is not for tensors, for damage, and for more values than tensors need.
  const PickleValue& load();
  /// Bytes that have been read.
  size_t position() const { return at_; }

  const PickleValue& at(uint32_t index) const { return values_.at(index); }
  /// The i-th of a value's items; throws ExitCode::kData if there are fewer.
  const PickleValue& item(const PickleValue& of, size_t i) const;
  /// Throws ExitCode::kData for another kind.
  int64_t integer(const PickleValue& value) const;
  std::string_view text(const PickleValue& value) const;
  std::vector<int64_t> integers(const PickleValue& tuple) const;

 private:
  using Kind = PickleValue::Kind;
  void step(uint8_t operation);
  bool push_constant(uint8_t operation);
  bool push_text(uint8_t operation);
  void push_tuple(uint8_t operation);
  bool build(uint8_t operation);
  bool memorize(uint8_t operation);
  void call();
  void push_global(std::string_view module, std::string_view name);
  void append(bool many, size_t each);
  uint32_t push(PickleValue value);
  uint32_t pop();
  std::vector<uint32_t> pop_to_mark();
  std::string_view take(size_t bytes);
  std::string_view line();
  template <typename T>
  T number();
  [[noreturn]] void refuse(const std::string& what) const;
  void check_memo(size_t index) const;

  std::span<const std::byte> bytes_;
  const std::string where_;
  const std::vector<std::string> globals_;
  size_t at_ = 0, started_ = 0, references_ = 0;
  bool stopped_ = false;
  std::vector<PickleValue> values_;
  std::vector<std::string> names_;  // of globals: "module.name"
  std::vector<uint32_t> stack_, memo_;
  std::vector<size_t> marks_;
};

}  // namespace quintet::huggingface
