// A bundle's parameters are where they lie in its file: nothing is copied, whole or in parts, whatever they are quantized to.

#include "apps/model/weights/stored_parameters.h"

#include <gtest/gtest.h>

#include "checkpoint/bundle/bundle.h"
#include "checkpoint/write/bundle_writer.h"
#include "tests/checkpoint/scratch.h"

namespace quintet {
namespace {

using testing::Scratch;

const std::string kTable = "token_embedder/embedding", kMatrix = "decoder/layers_0/mlp/wi/kernel",
                  kOut = "decoder/layers_0/mlp/wo/kernel",
                  kExperts = "decoder/layers_1/mlp/expert/wi/kernel",
                  kNorm = "decoder/decoder_norm/scale";

std::shared_ptr<const CheckpointReader> bundle_in(const std::filesystem::path& folder,
                                                  DType matrices) {
  std::map<std::string, HostArray> arrays;
  const auto add = [&](const std::string& name, DType dtype, std::vector<int64_t> shape) {
    HostArray array(dtype, std::move(shape));
    for (size_t i = 0; i < array.bytes.size(); ++i) array.bytes[i] = static_cast<std::byte>(i % 60);
    arrays.emplace(parameter_key(name), std::move(array));
  };
  add(kTable, matrices, {6, 5});
  add(kMatrix, matrices, {5, 7});
  add(kOut, matrices == DType::f32 ? DType::f32 : DType::bf16, {7, 5});
  add(kExperts, matrices, {3, 5, 7});
  add(kNorm, DType::f32, {5});
  if (matrices == DType::i8) {
    add(scales_name(kTable), DType::f32, {6});
    add(scales_name(kMatrix), DType::f32, {7});
    add(scales_name(kExperts), DType::f32, {3, 7});
  }
  WriteRequest request{.folder = folder / "model.safetensors", .state_json = "{}"};
  for (const auto& [name, array] : arrays) request.tensors[name] = {array.dtype, array.shape};
  const auto writer = bundle::format().make(request);
  writer->begin();
  for (const auto& [name, array] : arrays) writer->write(name, array);
  writer->finish();
  return std::make_shared<bundle::Reader>(folder / "model.safetensors");
}

/// Where an array begins in the mapped file.
const std::byte* begin_of(const CheckpointReader& reader, const std::string& name) {
  const std::string key = parameter_key(name);
  const std::vector<int64_t> shape = reader.tensors().at(key).shape;
  return reader.in_place({key, std::vector<int64_t>(shape.size(), 0), shape}).value().values;
}

class Bundle : public ::testing::TestWithParam<DType> {
 protected:
  const Scratch scratch_;
  const DType dtype_ = GetParam();
  const int64_t size_ = size_of(dtype_);
  const std::shared_ptr<const CheckpointReader> reader_ = bundle_in(scratch_.path(), dtype_);
  const decoding::ParameterSource source_ =
      source_of({.type = dtype_ == DType::i8 ? WeightType::int8 : WeightType::f32,
                 .stored = reader_,
                 .quantized = dtype_ == DType::i8});

  /// `values` elements and `scales` scales behind its beginning.
  void expect_at(const decoding::StoredParameter& found, const std::string& name, int64_t values,
                 int64_t scales) const {
    EXPECT_EQ(found.values.pointer, begin_of(*reader_, name) + values * size_) << name;
    if (dtype_ != DType::i8) {
      EXPECT_EQ(found.scales, nullptr);
      return;
    }
    EXPECT_EQ(static_cast<const void*>(found.scales),
              begin_of(*reader_, scales_name(name)) + scales * 4)
        << name;
  }
};

TEST_P(Bundle, GivesParametersWhereTheyLie) {
  for (const std::string& name : {kTable, kMatrix, kExperts}) {
    const decoding::StoredParameter found = source_(name);
    EXPECT_EQ(found.values.dtype, dtype_);
    expect_at(found, name, 0, 0);
  }
  for (const std::string& name : {kOut, kNorm})
    EXPECT_EQ(source_(name).values.pointer, begin_of(*reader_, name)) << name;
}

TEST_P(Bundle, GivesPartsWhereTheyLie) {
  ASSERT_TRUE(source_.has_parts());
  const auto columns = source_.part(kMatrix, {1, 2, 3});
  expect_at(columns, kMatrix, 2, 2);
  EXPECT_EQ(columns.strides, (std::array<int64_t, 2>{7, 1}));
  EXPECT_EQ(columns.values.size(-1), 3);
  expect_at(source_.part(kTable, {0, 1, 3}), kTable, 5, 1);
  expect_at(source_.part(kExperts, {0, 2, 1}), kExperts, 2 * 35, 2 * 7);
  EXPECT_EQ(source_.part(kOut, {1, 1, 2}).values.pointer,
            begin_of(*reader_, kOut) + (dtype_ == DType::i8 ? 2 : 4));
}

INSTANTIATE_TEST_SUITE_P(, Bundle, ::testing::Values(DType::f32, DType::i8),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace quintet
