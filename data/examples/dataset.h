#pragma once
// Examples and streams of them. A stream is pulled one example at a time, and can say where it is
// in a few integers, from which an equal stream goes on exactly there.
//
//   Example example;
//   while (stream->next(example)) use(example.tokens("targets"));
//
// Every random choice about an example is a function of example.key, which its source derives from
// (seed, epoch, index); so what comes out never depends on threads, batch size or a restart.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "data/vocabularies/vocabulary.h"
#include "runtime/base/threefry.h"

namespace quintet::data {

/// A feature of two or more dimensions, row-major.
template <typename T>
struct NdArray {
  std::vector<int64_t> shape;
  std::vector<T> values;
  bool operator==(const NdArray&) const = default;
};

/// Whole numbers of 64 bits are there where 32 are too few.
using Value = std::variant<Tokens, std::string, int64_t, double, std::vector<double>,
                           std::vector<std::string>, NdArray<int32_t>, NdArray<double>,
                           std::vector<int64_t>, NdArray<int64_t>>;
/// Dimensions of a value: 0 for a single text or number.
size_t rank_of(const Value& value);

/// Where examples come from, for messages: "corpus.txt:12".
class Provenance {
 public:
  virtual ~Provenance() = default;
  virtual std::string where(int64_t index) const = 0;
};

/// Named features in order of insertion (few: linear search beats hashing).
class Example {
 public:
  using Item = std::pair<std::string, Value>;

  Key key;                                 // randomness of this example
  const Provenance* provenance = nullptr;  // owned by the source; outlives the stream
  int64_t index = -1;                      // in the provenance

  const std::vector<Item>& items() const { return items_; }
  std::vector<Item>& items() { return items_; }
  const Value* find(std::string_view name) const;
  Value* find(std::string_view name);
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Replaces the value, or appends the feature.
  void set(std::string_view name, Value value);
  void erase(std::string_view name);
  void clear() { items_.clear(); }

  /// The feature as that type; throws kData naming the example, the feature and what it has
  /// instead.
  const Tokens& tokens(std::string_view name) const;
  Tokens& tokens(std::string_view name);
  const std::string& text(std::string_view name) const;
  const std::vector<std::string>& texts(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  const Value& at(std::string_view name) const;
  /// "corpus.txt:12", or "example 12".
  std::string where() const;

 private:
  std::vector<Item> items_;
};

/// One line for people: {inputs: "text", targets: [5, 6, 1]}.
std::string to_string(const Value& value);
std::string to_string(const Example& example);

/// A stream's place. Each stage appends its integers after those of the stage before it.
using Position = std::vector<int64_t>;

/// Takes integers off the front of a Position; throws kData when there are too few.
class PositionReader {
 public:
  explicit PositionReader(const Position& position) : position_(position) {}
  int64_t take();
  bool done() const { return at_ == position_.size(); }

 private:
  const Position& position_;
  size_t at_ = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  /// Overwrites `out` with the next example; false at the end.
  virtual bool next(Example& out) = 0;
  virtual void save(Position& position) const = 0;
  virtual void restore(PositionReader& position) = 0;
};
using StreamPtr = std::unique_ptr<Stream>;

/// A stream over a vector, for tests and small evaluation sets.
StreamPtr stream_of(std::vector<Example> examples);
/// All examples that are left.
std::vector<Example> collect(Stream& stream);

}  // namespace quintet::data
