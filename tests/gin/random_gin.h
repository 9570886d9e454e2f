#pragma once
// Random gin values and files, for properties that must hold for all of them.

#include <random>
#include <string>
#include <vector>

#include "runtime/gin/syntax/value.h"

namespace quintet::testing {

class RandomGin {
 public:
  explicit RandomGin(uint32_t seed) : generator_(seed) {}

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(generator_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(generator_); }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

  std::string text() {
    static const std::vector<std::string> pieces = {
        "a", "bc", " ",      "  ",         "\n",     "\t",   "'", "\"", "\\",   "#",
        "%", "@x", "\u00e9", "\U0001f642", "\u200b", "\x01", "{", "]",  "word", "long_word_"};
    std::string out;
    for (size_t n = below(4) == 0 ? below(60) : below(6); n > 0; --n) out += pick(pieces);
    return out;
  }

  /// A literal, a macro M0..M3, or a reference to one of `functions`.
  gin::Value value(const std::vector<std::string>& functions, int depth = 0) {
    switch (below(depth < 4 ? 12 : 8)) {
      case 0:
        return static_cast<int64_t>(generator_()) - 2147483648;
      case 1:
        return std::normal_distribution<double>(
            0, std::pow(10.0, static_cast<double>(below(40)) - 20))(generator_);
      case 2:
        return chance(0.5);
      case 3:
        return {};
      case 4:
        return text();
      case 5:
        return chance(0.5) ? gin::Value(gin::Bytes{text()})
                           : gin::Value(gin::BigInt{"123456789012345678901"});
      case 6:
        return gin::Macro{"M" + std::to_string(below(4))};
      case 7: {
        std::vector<std::string> scopes;
        if (chance(0.5)) scopes = {"s"};
        if (chance(0.2)) scopes = {"s", "t"};
        return gin::Reference{scopes, pick(functions), chance(0.5)};
      }
      case 8: {
        gin::Dict dict;
        for (size_t n = below(5); n > 0; --n) {
          gin::Value key =
              chance(0.7) ? gin::Value(text()) : gin::Value(static_cast<int64_t>(below(50)));
          dict.set(std::move(key), value(functions, depth + 1));
        }
        return dict;
      }
      case 9:
        return gin::tuple_of(items(functions, depth));
      default:
        return gin::list_of(items(functions, depth));
    }
  }

 private:
  std::vector<gin::Value> items(const std::vector<std::string>& functions, int depth) {
    std::vector<gin::Value> out;
    for (size_t n = below(chance(0.2) ? 12 : 4); n > 0; --n)
      out.push_back(value(functions, depth + 1));
    return out;
  }
  std::mt19937 generator_;
};

}  // namespace quintet::testing
