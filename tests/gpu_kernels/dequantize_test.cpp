// Quantized matrices dequantized, on the device and on the CPU, against one element at a time.

#include "kernels/dequantize/dequantize.h"

#include "runtime/base/float8.h"
#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {
namespace {

enum class Scales { none, by_column, by_row };

struct Case {
  int64_t rows, columns;  // of the table
  Scales scales = Scales::none;
  int64_t matrices = 1;  // that the rows are of
  std::vector<int32_t> ids = {};
  float factor = 1;
  int shift = 0;
};

class Dequantize : public DeviceTest {
 protected:
  template <typename W>
  static W stored(float x) {
    if constexpr (std::is_same_v<W, int8_t>)
      return static_cast<W>(std::lround(std::clamp(x * 50, -127.0f, 127.0f)));
    else
      return W(x);
  }

  template <typename W>
  void check(DType dtype, const Case& c) {
    SCOPED_TRACE(fmt::format("{}: {} x {}", name_of(dtype), c.rows, c.columns));
    std::vector<W> values;
    for (const float x : normals(static_cast<size_t>(c.rows * c.columns), 1))
      values.push_back(stored<W>(x));
    const int64_t together = c.rows / c.matrices;
    const int64_t count = c.scales == Scales::by_row      ? c.rows
                          : c.scales == Scales::by_column ? c.matrices * c.columns
                                                          : 0;
    const std::vector<float> scales = normals(static_cast<size_t>(count), 2);
    const int64_t rows = c.ids.empty() ? c.rows : std::ssize(c.ids);
    std::vector<float> want;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = c.ids.empty() ? i : c.ids[static_cast<size_t>(i)];
      for (int64_t k = 0; k < c.columns; ++k) {
        const int64_t at = c.scales == Scales::by_row ? row : row / together * c.columns + k;
        const float scale = count == 0 ? 1.0f : scales[static_cast<size_t>(at)];
        want.push_back(static_cast<float>(values[static_cast<size_t>(row * c.columns + k)]) *
                       scale * c.factor);
      }
    }
    DequantizeRows p{.dtype = dtype,
                     .values = values.data(),
                     .scales = count == 0 ? nullptr : scales.data(),
                     .rows_together = c.scales == Scales::by_row ? 0 : together,
                     .factor = c.factor,
                     .ids = c.ids.empty() ? nullptr : c.ids.data(),
                     .table_rows = c.rows,
                     .rows = rows,
                     .columns = c.columns};
    std::vector<float> out(want.size());
    p.out = out.data();
    dequantize_rows_cpu(p);
    EXPECT_EQ(out, want) << "on the CPU";
    const OnDevice<W> there(device(), values, c.shift);
    const OnDevice<float> scales_there(device(), scales);
    const OnDevice<int32_t> ids_there(device(), c.ids);
    p.values = there.data();
    if (count > 0) p.scales = scales_there.data();
    if (!c.ids.empty()) p.ids = ids_there.data();
    const OnDevice<float> dequantized(device(), out);
    p.out = dequantized.data();
    device().kernels().dequantize_rows(p, device().stream());
    EXPECT_EQ(dequantized.back(), want);
    const OnDevice<bfloat16> half(device(), rounded(std::vector<float>(want.size())));
    p.out = half.data();
    p.out_dtype = DType::bf16;
    device().kernels().dequantize_rows(p, device().stream());
    EXPECT_EQ(widened(half.back()), widened(rounded(want)));
  }
  void check_all(const Case& c) {
    on_every_schedule([&] {
      check<float>(DType::f32, c);
      check<bfloat16>(DType::bf16, c);
      check<int8_t>(DType::i8, c);
      check<float8>(DType::u8, c);
    });
  }
};

TEST_F(Dequantize, MatricesWithAndWithoutScales) {
  check_all({.rows = 7, .columns = 24});
  check_all({.rows = 5, .columns = 13, .scales = Scales::by_column});
  check_all({.rows = 9, .columns = 40, .scales = Scales::by_row, .factor = 8});
  check_all({.rows = 1, .columns = 1, .scales = Scales::by_column});
  check_all({.rows = 6, .columns = 16, .scales = Scales::by_column, .shift = 1});
}
TEST_F(Dequantize, SeveralMatricesHaveScalesOfTheirOwn) {
  check_all({.rows = 12, .columns = 16, .scales = Scales::by_column, .matrices = 3});
}
TEST_F(Dequantize, RowsOfATable) {
  check_all({.rows = 30, .columns = 8, .scales = Scales::by_row, .ids = {3, 0, 29, 3}});
  check_all({.rows = 30, .columns = 5, .ids = {7}});
}
TEST_F(Dequantize, EveryByteOfFloat8) {
  std::vector<float8> all(256);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint8_t>(i);
  std::vector<float> want;
  for (const float8 x : all)
    want.push_back(std::isnan(static_cast<float>(x)) ? 0 : static_cast<float>(x));
  const OnDevice<float8> there(device(), all);
  const OnDevice<float> out(device(), want);
  device().kernels().dequantize_rows({.dtype = DType::u8,
                                      .values = there.data(),
                                      .rows_together = 1,
                                      .table_rows = 1,
                                      .rows = 1,
                                      .columns = 256,
                                      .out = out.data()},
                                     device().stream());
  std::vector<float> got = out.back();
  got[0x7f] = got[0xff] = 0;  // NaN, or 480 before sm_89
  EXPECT_EQ(got, want);
}
TEST_F(Dequantize, AnIdOutsideTheTableIsReported) {
  const std::vector<int8_t> table(24, 1);
  const std::vector<int32_t> ids{0, 3};
  const OnDevice<int8_t> there(device(), table);
  const OnDevice<int32_t> ids_there(device(), ids);
  const OnDevice<float> out(device(), std::vector<float>(16));
  DequantizeRows p{.dtype = DType::i8,
                   .values = there.data(),
                   .ids = ids_there.data(),
                   .table_rows = 3,
                   .rows = 2,
                   .columns = 8,
                   .out = out.data()};
  device().kernels().dequantize_rows(p, device().stream());
  const auto says = [](const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_NE(std::string(error.what()).find("id 3 at position 1: expected 0 to 2"),
              std::string::npos)
        << error.what();
  };
  try {
    device().synchronize();
    ADD_FAILURE() << "no fault";
  } catch (const Error& error) {
    says(error);
  }
  p.values = table.data();
  p.ids = ids.data();
  std::vector<float> host(16);
  p.out = host.data();
  try {
    dequantize_rows_cpu(p);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    says(error);
  }
}

}  // namespace
}  // namespace quintet::testing
