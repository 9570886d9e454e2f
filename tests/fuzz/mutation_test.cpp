// Runs a fuzz target on seeds, on its corpus and on mutations of both, the same every time.
// $QUINTET_FUZZ_RUNS: mutations (20,000). Limits of an input: a second of the processor, a minute of
// waiting (what blocks computes nothing; a busy machine does not take that long), 256 MiB.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <random>

#include "runtime/base/formats/json.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/wall_limit.h"

namespace quintet {
namespace {

constexpr const char* kFragments[] = {
    "-1",
    "0",
    "1e999",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "0.5",
    "null",
    "[]",
    "{}",
    "\"\"",
    "\\u0000",
    "../",
    "\xff",
    "[[[[",
    "4294967296",
    "\"a\":",
    "true",
};

class Mutator {
  size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }
  template <typename Range>
  const auto& pick(const Range& range) {
    return *(std::begin(range) + static_cast<int64_t>(below(std::size(range))));
  }

 public:
  explicit Mutator(std::vector<std::string> pool) : pool_(std::move(pool)) {}
  std::string next() {
    std::string text = pick(pool_);
    for (size_t i = 1 + below(4); i > 0; --i) mutate(text);
    return text;
  }

 private:
  void mutate(std::string& text) {
    const size_t at = below(text.size() + 1), length = std::min(below(32), text.size() - at);
    switch (below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      case 4:
        replace_token(text, at);
        break;
      case 5:
        text.resize(at);
        break;
      default: {
        const std::string& other = pick(pool_);
        const size_t from = below(other.size() + 1);
        text.insert(at, other.substr(from, below(64)));
      }
    }
  }
  /// A number or word becomes one that readers trip over.
  void replace_token(std::string& text, size_t at) {
    const auto is_part = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '-';
    };
    size_t begin = at, end = at;
    while (begin > 0 && is_part(text[begin - 1])) --begin;
    while (end < text.size() && is_part(text[end])) ++end;
    text.replace(begin, end - begin, pick(kFragments));
  }

  std::vector<std::string> pool_;
  std::mt19937 random_{12345};
};

/// NAME of the program fuzz_NAME_test.
std::string fuzz_name() {
  const std::string_view program = program_invocation_short_name, before = "fuzz_", after = "_test";
  QT_ASSERT(program.starts_with(before) && program.ends_with(after));
  return std::string(program.substr(before.size(), program.size() - before.size() - after.size()));
}

std::vector<std::string> corpus() {
  std::vector<std::string> inputs = testing::fuzz_seeds();
  const std::filesystem::path folder =
      std::filesystem::path(QUINTET_SOURCE_DIR) / "tests/corpus" / fuzz_name();
  if (std::filesystem::is_directory(folder)) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) inputs.push_back(read_file(file));
  }
  return inputs;
}

long peak_kilobytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void run(const std::string& input, const std::string& what) {
  SCOPED_TRACE(what);
  const testing::WallLimit limit(input, std::chrono::minutes(1));
  const std::clock_t start = std::clock();  // of this process: a busy machine does not count
  EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size()),
            0);
  EXPECT_LT(std::clock() - start, CLOCKS_PER_SEC) << input.substr(0, 2000);
}

TEST(WallLimit, EndsAnInputThatBlocksAndNamesIt) {
  const std::string input = "the one that waits";
  EXPECT_DEATH(
      {
        const testing::WallLimit limit(input, std::chrono::milliseconds(50));
        ::pause();
      },
      input);
}

TEST(Mutations, GiveErrorsAndNothingWorse) {
  const std::vector<std::string> inputs = corpus();
  ASSERT_FALSE(inputs.empty());
  const char* wanted = std::getenv("QUINTET_FUZZ_RUNS");
  const int runs = wanted != nullptr ? std::atoi(wanted) : 20'000;
  const long before = peak_kilobytes();
  run("", "nothing");
  for (size_t i = 0; i < inputs.size(); ++i) run(inputs[i], "corpus " + std::to_string(i));
  Mutator mutator(inputs);
  for (int i = 0; i < runs && !HasFailure(); ++i)
    run(mutator.next(), "mutation " + std::to_string(i));
  EXPECT_LT(peak_kilobytes() - before, 256 * 1024);
}

}  // namespace
}  // namespace quintet
