// Which algorithm a product takes and which of several variants runs, from process to process:
// kernels/simt/host/gemm_cublaslt.cpp and autotuner.cpp on a fake cuBLASLt, whose three algorithms are as
// fast as a test says.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "cublasLt.h"
#include "kernels/simt/host/gemm.h"
#include "kernels/simt/host/variants.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"
#include "tests/checkpoint/scratch.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

std::string what_ran() {
  std::string ran;
  for (const uint64_t algorithm : fake_cublaslt().ran) ran += static_cast<char>('0' + algorithm);
  return ran;
}

/// c [2, 2] = a [2, 3] b [3, 2], twice: the algorithms that ran, the last two for the products.
std::string products() {
  const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, 0, 1, 1, 1}, expected[] = {4, 5, 10, 11};
  for (int time = 0; time < 2; ++time) {
    float c[4] = {};
    cuda::simt::gemm({}, {.m = 2, .n = 2, .k = 3, .a = a, .b = b, .c = c});
    if (!std::equal(c, c + 4, expected)) return "a wrong product";
  }
  return what_ran();
}

/// a [2, 3] times three b [3, 2], which lie 8 numbers apart, added to c, which lie 5 apart.
std::string products_of_one() {
  const float a[] = {1, 2, 3, 4, 5, 6};
  std::vector<float> b(3 * 8, -100), c(3 * 5, 0.5f);
  for (size_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < 6; ++k) b[8 * i + k] = static_cast<float>(i * k);
  for (int time = 0; time < 2; ++time)
    cuda::simt::gemm({}, {.m = 2,
                          .n = 2,
                          .k = 3,
                          .a = a,
                          .b = b.data(),
                          .c = c.data(),
                          .addend = c.data(),
                          .batch = 3,
                          .b_stride = 8,
                          .c_stride = 5});
  for (size_t i = 0; i < 3; ++i)
    for (size_t at = 0; at < 5; ++at) {
      const float product[] = {16, 22, 34, 49, 0};  // a times rows 0 1, 2 3, 4 5; nothing between
      if (c[5 * i + at] != 0.5f + 2 * static_cast<float>(i) * product[at]) return "a wrong product";
    }
  return "right";
}

/// Two products in 8 bits of one form and scales of their own, twice, and one with the formats of gradients.
std::string fp8_products() {
  alignas(16) const uint8_t a[16] = {0x38, 0x40}, b[16 * 16] = {0x38, 0x38};  // 1, 2; 1, 1
  alignas(16) const float scales[3][4] = {{0.5f}, {4}, {0.25f}};
  alignas(16) const uint8_t gradients[16] = {0x3c, 0x40};  // 1, 2 in E5M2
  const auto product = [&](const float* a_scale, const float* b_scale, bool of_gradients) {
    alignas(16) float c[16] = {};
    cuda::simt::gemm(
        {}, {.m = 1,
             .n = 16,
             .k = 16,
             .a = of_gradients ? gradients : a,
             .b = b,
             .c = c,
             .b_transposed = true,
             .fp8 = cuda::simt::Float8Operands{of_gradients ? Float8::e5m2 : Float8::e4m3,
                                               Float8::e4m3, a_scale, b_scale, !of_gradients}});
    return c[0];
  };
  for (int time = 0; time < 2; ++time)
    if (product(scales[0], scales[1], false) != 6 || product(scales[1], scales[2], false) != 3 ||
        product(scales[1], scales[1], true) != 48)
      return "a wrong product";
  return "right";
}

/// A problem that kVariants variants solve, twice: those that ran, the last two for the results.
template <int kVariants>
std::string variants() {
  const auto variant = [](uint64_t number) { return [number] { fake_cublaslt().run(number); }; };
  for (int time = 0; time < 2; ++time)
    if constexpr (kVariants == 3)
      cuda::simt::run_fastest_variant({}, "a problem", {variant(0), variant(1), variant(2)});
    else
      cuda::simt::run_fastest_variant({}, "a problem", {variant(0), variant(1)});
  return what_ran();
}

/// By eight threads, problems that all of them meet at about the same time.
std::string products_of_threads() {
  const std::vector<float> a(3 * 400, 1), b(3 * 2, 1);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int64_t m = 1; m <= 400; ++m) {
        std::vector<float> c(static_cast<size_t>(2 * m));
        cuda::simt::gemm({}, {.m = m, .n = 2, .k = 3, .a = a.data(), .b = b.data(), .c = c.data()});
        wrong += std::count(c.begin(), c.end(), 3.0F) != 2 * m;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return std::to_string(wrong) + (fake_cublaslt().asked_at_once ? " and asked at once" : "");
}

struct Outcome {
  std::string ran, said;
};

/// In a process of its own, whose cuBLASLt knows nothing yet.
Outcome in_process(const FakeCublasLt& fake, std::string (*job)() = products) {
  int results[2], errors[2];
  EXPECT_TRUE(::pipe(results) == 0 && ::pipe(errors) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(errors[1], STDERR_FILENO);
    fake_cublaslt() = fake;
    const std::string ran = job();
    const bool whole =
        ::write(results[1], ran.data(), ran.size()) == static_cast<ssize_t>(ran.size());
    std::exit(whole ? 0 : 1);  // the library is destroyed, as at the end of any process
  }
  const auto all_of = [](const int(&ends)[2]) {
    ::close(ends[1]);
    std::string text(1 << 12, ' ');
    size_t size = 0;
    for (ssize_t got; (got = ::read(ends[0], text.data() + size, text.size() - size)) > 0;)
      size += static_cast<size_t>(got);
    ::close(ends[0]);
    return text.substr(0, size);
  };
  Outcome outcome{all_of(results), all_of(errors)};
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return outcome;
}

class Algorithms : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", scratch_.path().c_str(), 1);
    ::unsetenv("QUINTET_DETERMINISTIC");
  }
  fs::path file() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(scratch_.path()))
      if (entry.is_regular_file()) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1);
    return files.empty() ? "" : files[0];
  }
  static std::string text_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void put(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static bool measured(const Outcome& outcome) { return outcome.ran.size() > 2; }
  testing::Scratch scratch_;
};

constexpr const char* kMeasuredOnce =
    "00001111222211";  // each of three four times, then two products

TEST_F(Algorithms, ProductsIn8BitsHaveTheScalesOfTheirCall) {
  EXPECT_EQ(in_process({}, fp8_products).ran, "right");
}

TEST_F(Algorithms, AreForABatchThatSharesAnOperandAndAddsInPlace) {
  EXPECT_EQ(in_process({.fastest = 1}, products_of_one).ran, "right");
}

TEST_F(Algorithms, AreMeasuredOnceAndKept) {
  EXPECT_EQ(in_process({.fastest = 1}).ran, kMeasuredOnce);
  const Outcome later = in_process({.fastest = 2});  // measuring would take 2
  EXPECT_EQ(later.ran, "11");
  EXPECT_EQ(later.said, "");
}

TEST_F(Algorithms, AreForAnyNumberOfThreads) {
  EXPECT_EQ(in_process({.fastest = 1}, products_of_threads).ran, "0");
}

TEST_F(Algorithms, OfAnotherVersionAreNotTaken) {
  in_process({.fastest = 1});
  EXPECT_TRUE(measured(in_process({.version = 130001, .fastest = 2})));
  EXPECT_EQ(in_process({.fastest = 2}).ran, "11");
  EXPECT_EQ(in_process({.version = 130001, .fastest = 1}).ran, "22");
}

TEST_F(Algorithms, OfADamagedFileAreMeasuredAgain) {
  in_process({.fastest = 1});
  const std::string whole = text_of(file());
  for (size_t byte = 0; byte < whole.size(); byte += 3) {
    std::string damaged = whole;
    damaged[byte] ^= 4;
    put(file(), damaged);
    const Outcome outcome = in_process({.fastest = 1});
    ASSERT_EQ(outcome.ran, kMeasuredOnce) << "byte " << byte;
    ASSERT_NE(outcome.said.find("is damaged; algorithms of matrix products are measured again\n"),
              std::string::npos);
    ASSERT_EQ(text_of(file()), whole) << "byte " << byte;
  }
  for (const std::string& text :
       {std::string(), whole.substr(0, whole.size() / 2), whole + whole}) {
    put(file(), text);
    EXPECT_EQ(in_process({.fastest = 1}).ran, kMeasuredOnce);
  }
}

TEST_F(Algorithms, ThatDoNotFitAreMeasuredAgain) {
  in_process({.fastest = 1});
  std::string text = text_of(file());
  text.resize(text.rfind("crc32c"));
  const size_t mark = text.find("5451");  // the second word of the algorithm: whose it is
  ASSERT_NE(mark, std::string::npos);
  text.replace(mark, 4, "ffff");
  put(file(), text + fmt::format("crc32c {:08x}\n", crc32c(text)));
  const Outcome outcome = in_process({.fastest = 2});
  EXPECT_TRUE(measured(outcome));
  EXPECT_EQ(outcome.ran.substr(outcome.ran.size() - 2), "22");
}

TEST_F(Algorithms, OfAnotherGpuAreReportedAndMeasuredAgain) {
  in_process({.fastest = 1});
  std::string text = text_of(file());
  text.resize(text.rfind("crc32c"));
  text.replace(text.find("a GPU of tests"), 14, "another's GPU!");
  put(file(), text + fmt::format("crc32c {:08x}\n", crc32c(text)));
  const Outcome outcome = in_process({.fastest = 1});
  EXPECT_EQ(outcome.ran, kMeasuredOnce);
  EXPECT_NE(outcome.said.find("is of another's GPU!"), std::string::npos) << outcome.said;
}

TEST_F(Algorithms, AreTheFirstWhenResultsMustRepeat) {
  in_process({.fastest = 1});
  const std::string whole = text_of(file());
  ::setenv("QUINTET_DETERMINISTIC", "1", 1);
  EXPECT_EQ(in_process({.fastest = 1}).ran, "00");
  EXPECT_EQ(text_of(file()), whole);
}

TEST_F(Algorithms, AreNotMeasuredNorKeptWhileAGraphIsRecorded) {
  EXPECT_EQ(in_process({.capturing = cudaStreamCaptureStatusActive}).ran, "00");
  EXPECT_TRUE(fs::is_empty(scratch_.path()));
}

TEST_F(Algorithms, AreMeasuredEachTimeWhereNothingCanBeWritten) {
  put(scratch_.path() / "a file", "");
  ::setenv("XDG_CACHE_HOME", (scratch_.path() / "a file").c_str(), 1);
  for (int time = 0; time < 2; ++time) {
    const Outcome outcome = in_process({.fastest = 1});
    EXPECT_EQ(outcome.ran, kMeasuredOnce);
    EXPECT_NE(outcome.said.find("algorithms of matrix products are not cached\n"),
              std::string::npos);
  }
}

TEST_F(Algorithms, AFailingGpuIsAnErrorNotAMeasurement) {
  const auto job = +[] {
    try {
      return products();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(in_process({.times = false}, job).ran,
            "CUDA: cudaEventRecord(event_, stream): unspecified launch failure "
            "(cudaErrorLaunchFailure)");
}

TEST_F(Algorithms, VariantsAreMeasuredOnceAndCached) {
  EXPECT_EQ(in_process({.fastest = 2}, variants<3>).ran, "00001111222222");
  EXPECT_EQ(in_process({.fastest = 1}, variants<3>).ran, "22");
}

TEST_F(Algorithms, AVariantThatIsNoMoreIsMeasuredAgain) {
  in_process({.fastest = 2}, variants<3>);
  EXPECT_EQ(in_process({.fastest = 1}, variants<2>).ran, "0000111111");
}

TEST_F(Algorithms, TheFirstVariantRunsWhenResultsMustRepeatOrAGraphIsRecorded) {
  EXPECT_EQ(in_process({.capturing = cudaStreamCaptureStatusActive}, variants<3>).ran, "00");
  ::setenv("QUINTET_DETERMINISTIC", "1", 1);
  EXPECT_EQ(in_process({.fastest = 2}, variants<3>).ran, "00");
  EXPECT_TRUE(fs::is_empty(scratch_.path()));
}

}  // namespace
}  // namespace quintet
