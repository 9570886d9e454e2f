#pragma once
// msgpack as flax.serialization writes it: dictionaries by text keys, lists, numbers, texts, arrays. Nothing
// is copied: texts and arrays point into the bytes.
//
//   const MsgpackValue root = read_msgpack(file.bytes(), "checkpoint");
//   const MsgpackValue* step = root.find("step");

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "checkpoint/arrays/file_tensor.h"

namespace quintet {

struct MsgpackValue {
  using List = std::vector<MsgpackValue>;
  struct Member;
  using Dict = std::vector<Member>;  // in the file's order
  /// None, a bool, an integer, a float, a text or bytes, a list, a dictionary, an array or NumPy scalar.
  std::variant<std::monostate, bool, int64_t, double, std::string_view, List, Dict, FileTensor>
      value;

  template <typename T>
  const T* as() const {
    return std::get_if<T>(&value);
  }
  /// A member of a dictionary; null if there is none or this is none.
  const MsgpackValue* find(std::string_view key) const;
  /// What it is, for messages: "a dictionary".
  std::string_view kind() const;
};

struct MsgpackValue::Member {
  std::string_view key;
  MsgpackValue value;
};

/// Reads one value that fills `bytes`. Arrays are flax's extension types 1 (ndarray) and 3 (NumPy scalar);
/// those that flax cuts into chunks are whole again. Throws ExitCode::kData naming `where` and the byte for
/// damage, for other types, a key that is there twice, and more values or a deeper nesting than parameters need.
/// Source: msgpack's specification; flax/serialization.py.
MsgpackValue read_msgpack(std::span<const std::byte> bytes, const std::string& where);

}  // namespace quintet
