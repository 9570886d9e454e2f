// Checkpoints written in other formats: by one host and by several, byte for byte what T5X writes, nothing
// that looks whole and is not.

#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <bit>
#include <cmath>

#include "checkpoint/arrays/half.h"
#include "checkpoint/open/open_checkpoint.h"
#include "checkpoint/region_reader.h"
#include "checkpoint/save.h"
#include "checkpoint/t5x/t5x_writer.h"
#include "checkpoint/write/copy_checkpoint.h"
#include "checkpoint/write/new_folder.h"
#include "checkpoint/zarr/zarr_array.h"
#include "checkpoint/zarr/zarr_writer.h"
#include "runtime/base/files/posix_file.h"
#include "tests/checkpoint/scratch.h"
#include "tests/checkpoint/thread_hosts.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::filled;
using testing::run_hosts;
using testing::same_state;
using testing::Scratch;
using testing::slices_of;
using testing::small_state;

fs::path save(const fs::path& model_dir, const HostArrays& state, int64_t step = 7) {
  HostGroup alone;
  make_folders(model_dir);
  write_checkpoint(model_dir, step, "run", slices_of(state), "{\"vocabularies\":{}}", alone);
  return checkpoint_path(model_dir, step);
}

HostArrays contents_of(const CheckpointReader& reader) {
  HostArrays arrays;
  for (const auto& [name, tensor] : reader.tensors()) {
    HostArray& array = arrays[name] = HostArray(tensor.dtype, tensor.shape);
    reader.read({name, std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape},
                array.bytes.data());
  }
  return arrays;
}

/// A copy in a format that holds whatever a native checkpoint does.
fs::path copy(const fs::path& from, const char* format_name, const fs::path& to, int hosts,
              std::optional<DType> dtype = {}) {
  const WriteFormat& format = write_format_named(format_name);
  const NativeCheckpointReader reader(from);
  make_folders(to.parent_path());
  run_hosts(hosts, [&](HostGroup& group) {
    WriteRequest request{.folder = to, .tensors = tensors_for(reader, format, dtype)};
    request.step = reader.step();
    request.run_id = "copy";
    request.state_json = reader.state_json();
    copy_checkpoint(reader, format, request, group);
  });
  return to;
}

TEST(CheckpointWriters, NativeCopiesOfAnyNumberOfHostsAreTheSame) {
  const Scratch scratch;
  HostArrays state = small_state();
  state["target/large"] = filled<float>({3, 700'001}, 20);
  for (auto& bits : state["target/large"].as<float>()) bits = std::isfinite(bits) ? bits : 1;
  const auto from = save(scratch.path() / "from", state);
  for (const int hosts : {1, 3}) {
    SCOPED_TRACE(hosts);
    const auto to =
        copy(from, "native", scratch.path() / std::to_string(hosts) / "checkpoint_7", hosts);
    const Checkpoint read = read_checkpoint(to);
    EXPECT_TRUE(same_state(read.arrays, state));
    EXPECT_EQ(read.step, 7);
    EXPECT_EQ(read.state_json, "{\"vocabularies\":{}}");
  }
}

TEST(CheckpointWriters, T5xCopiesOfAnyNumberOfHostsHoldEverything) {
  const Scratch scratch;
  HostArrays state = small_state();
  state["target/large"] = HostArray(DType::f32, {3, 2'000'003});  // more than a chunk
  for (size_t i = 0; float& value : state["target/large"].as<float>())
    value = static_cast<float>(i++ % 1001);
  state["target/cube"] = filled<bfloat16>({2, 3, 5}, 21);
  state["state/param_states/x/v_row"] = filled<int32_t>({7}, 22);
  const auto from = save(scratch.path() / "from", state);
  for (const int hosts : {1, 3}) {
    SCOPED_TRACE(hosts);
    const auto to =
        copy(from, "t5x", scratch.path() / std::to_string(hosts) / "checkpoint_7", hosts);
    EXPECT_TRUE(same_state(contents_of(*open_checkpoint(to)), state));
    EXPECT_NO_THROW(open_checkpoint(to)->verify());
  }
}

TEST(Zarr, ChunksAreContiguousAndNeitherTooLargeNorTooSmall) {
  using Shape = std::vector<int64_t>;
  const auto chunks = [](const Shape& shape) { return zarr_chunks(shape, DType::f32, 4096); };
  EXPECT_EQ(chunks({}), (Shape{}));
  EXPECT_EQ(chunks({16, 48}), (Shape{16, 48}));
  EXPECT_EQ(chunks({64, 64}), (Shape{16, 64}));      // divides
  EXPECT_EQ(chunks({62, 64}), (Shape{16, 64}));      // 2 does: too small
  EXPECT_EQ(chunks({3, 2'003}), (Shape{1, 1'024}));  // primes
  EXPECT_EQ(chunks({2, 3, 5}), (Shape{2, 3, 5}));
  EXPECT_EQ(chunks({0, 5'000}), (Shape{1, 1'000}));
}

/// Bytes on disk for each of an array whose share `zeros` is zero and whose rest is noise, once it reads back.
double stored_share(double zeros) {
  const Scratch scratch;
  HostArray array = filled<uint8_t>({1'024, 256}, 5);
  for (size_t row = 0; row < array.bytes.size(); row += 256)
    std::fill_n(array.bytes.begin() + static_cast<std::ptrdiff_t>(row),
                static_cast<int64_t>(256 * zeros), std::byte{0});
  const ZarrLayout layout{array.dtype, array.shape, {512, 256}};
  write_zarr(scratch.path() / "array", layout, array.bytes);
  HostArray read(array.dtype, array.shape);
  zarr::Array(zarr_metadata(layout), zarr::files_in(scratch.path() / "array"), "array")
      .read({0, 0}, array.shape, read.bytes.data());
  EXPECT_TRUE(read.bytes == array.bytes) << zeros;
  const auto size = fs::file_size(scratch.path() / "array" / "0.0") +
                    fs::file_size(scratch.path() / "array" / "1.0");
  return static_cast<double>(size) / static_cast<double>(array.bytes.size());
}

TEST(Zarr, OnlyWhatLosesAnEighthIsCompressed) {
  EXPECT_LT(stored_share(1), 0.02);
  EXPECT_LT(stored_share(0.5), 0.6);
  EXPECT_LT(stored_share(0.25), 0.85);
  EXPECT_GT(stored_share(0.06), 1);  // gzip's header and checksum, and the numbers as they are
  EXPECT_GT(stored_share(0), 1);
  EXPECT_LT(stored_share(0), 1.001);
}

/// Writes native checkpoints, one number of which is another one.
class LyingWriter final : public CheckpointWriter {
 public:
  explicit LyingWriter(const WriteRequest& request)
      : honest_(write_format_named("native").make(request)) {}
  void begin() override { honest_->begin(); }
  void write(const std::string& name, const HostArray& tensor) override {
    HostArray other = tensor;
    if (name == "target/decoder/logits_dense/kernel") other.bytes[5] ^= std::byte{1};
    honest_->write(name, other);
  }
  void finish_share() override { honest_->finish_share(); }
  void finish() override { honest_->finish(); }

 private:
  std::unique_ptr<CheckpointWriter> honest_;
};

TEST(CheckpointWriters, WhatIsWrittenIsReadBackAndCompared) {
  const Scratch scratch;
  const NativeCheckpointReader reader(save(scratch.path() / "from", small_state()));
  const WriteFormat lying{"lying",
                          "",
                          true,
                          true,
                          true,
                          [](const WriteRequest& request) -> std::unique_ptr<CheckpointWriter> {
                            return std::make_unique<LyingWriter>(request);
                          }};
  HostGroup alone;
  WriteRequest request{.folder = scratch.path() / "to", .tensors = tensors_for(reader, lying, {})};
  request.run_id = "copy";
  const std::string message =
      error_of(ExitCode::kDisk, [&] { copy_checkpoint(reader, lying, request, alone); });
  EXPECT_NE(message.find("'target/decoder/logits_dense/kernel' had changed when it was read back"),
            std::string::npos)
      << message;
}

TEST(CheckpointWriters, SharesHoldEachTensorOnceAndAreBalanced) {
  StoredTensors tensors;
  for (int i = 0; i < 40; ++i) tensors[fmt::format("t{}", i)] = {DType::f32, {1 + i % 9, 100}};
  std::set<std::string> all;
  std::vector<int64_t> elements;
  for (int host = 0; host < 3; ++host) {
    elements.push_back(0);
    for (const std::string& name : share_of(tensors, host, 3)) {
      EXPECT_TRUE(all.insert(name).second) << name;
      elements.back() += tensors.at(name).shape[0];
    }
  }
  EXPECT_EQ(all.size(), tensors.size());
  EXPECT_LE(std::abs(elements[0] - elements[2]), 9);
}

TEST(CheckpointWriters, AFailureOfOneHostIsTheFailureOfAll) {
  const Scratch scratch;
  HostArrays state = small_state();
  state["target/huge"] = HostArray(DType::f32, {2});
  state["target/huge"].as<float>()[0] = 1e6f;
  const NativeCheckpointReader reader(save(scratch.path() / "from", state));
  const WriteFormat& format = write_format_named("native");
  std::array<std::string, 3> data_errors, other_errors;
  run_hosts(3, [&](HostGroup& group) {
    const auto host = static_cast<size_t>(group.index());
    try {
      WriteRequest request{.folder = scratch.path() / "to",
                           .tensors = tensors_for(reader, format, DType::f16)};
      request.run_id = "copy";
      copy_checkpoint(reader, format, request, group);
    } catch (const Error& error) {
      (error.code() == ExitCode::kData ? data_errors : other_errors)[host] = error.what();
    }
  });
  const std::string reason = data_errors[0] + data_errors[1] + data_errors[2];
  EXPECT_NE(reason.find("1 values of tensor 'target/huge' (float32) are too large for float16"),
            std::string::npos)
      << reason;
  for (size_t host = 0; host < 3; ++host)
    EXPECT_NE(data_errors[host].empty(), other_errors[host].empty()) << host;
  EXPECT_FALSE(is_there(scratch.path() / "to" / "MANIFEST.json"));
}

TEST(CheckpointWriters, ParametersAloneGetAnotherDtype) {
  const Scratch scratch;
  HostArrays state;
  state["target/x"] = HostArray(DType::f32, {3});
  const auto values = state["target/x"].as<float>();
  values[0] = 1.00390625f;  // between two bfloat16: to the even one
  values[1] = -3.5f;
  values[2] = std::nanf("");
  state["state/param_states/x/v"] = filled<float>({3}, 1);
  const auto to =
      copy(save(scratch.path() / "from", state), "native", scratch.path() / "to", 1, DType::bf16);
  const HostArrays read = contents_of(NativeCheckpointReader(to));
  EXPECT_EQ(read.at("state/param_states/x/v").bytes, state.at("state/param_states/x/v").bytes);
  ASSERT_EQ(read.at("target/x").dtype, DType::bf16);
  const auto rounded = read.at("target/x").as<bfloat16>();
  EXPECT_EQ(static_cast<float>(rounded[0]), 1.0f);
  EXPECT_EQ(static_cast<float>(rounded[1]), -3.5f);
  EXPECT_TRUE(std::isnan(static_cast<float>(rounded[2])));
}

uint16_t half_from_float(float value) {
  HostArray array(DType::f32, {1});
  array.as<float>()[0] = value;
  const HostArray half = rounded(std::move(array), DType::f16);
  uint16_t bits = 0;
  std::memcpy(&bits, half.bytes.data(), sizeof(bits));
  return bits;
}

TEST(Half, RoundsToTheNearestAndToEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = float_from_half(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(float_from_half(half_from_float(value))));
      continue;
    }
    ASSERT_EQ(half_from_float(value), half) << value;
    if ((bits & 0x7fffu) >= 0x7bffu) continue;
    const float next = float_from_half(static_cast<uint16_t>(half + 1));
    const float middle = (value + next) / 2;  // exact
    const uint16_t even = (half & 1u) == 0 ? half : static_cast<uint16_t>(half + 1);
    ASSERT_EQ(half_from_float(middle), even) << middle;
    ASSERT_EQ(half_from_float(std::nextafter(middle, value)), half);
    ASSERT_EQ(half_from_float(std::nextafter(middle, next)), static_cast<uint16_t>(half + 1));
  }
  EXPECT_EQ(half_from_float(65519.996f), 0x7bff);
  EXPECT_EQ(half_from_float(65520.0f), 0x7c00);
}

std::string inflated(const fs::path& file) {
  const std::string bytes = read_file(file);
  std::string text(1 << 20, '\0');
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END) << file;
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return text;
}

/// Files below a folder: names and contents, chunks decompressed.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) {
      const fs::path name = fs::relative(entry.path(), folder);
      const bool is_chunk = name.has_parent_path() && name.filename() != ".zarray";
      files[name.string()] = is_chunk ? inflated(entry.path()) : read_file(entry.path());
    }
  return files;
}

/// What T5X's writer makes of arrays that two hosts have in turn.
std::map<std::string, std::string> files_of_t5x(const HostArrays& state) {
  const Scratch scratch;
  StoredTensors tensors;
  for (const auto& [name, array] : state) tensors[name] = {array.dtype, array.shape};
  t5x::Writer first(scratch.path() / "to", tensors, 0), second(scratch.path() / "to", tensors, 1);
  first.begin();
  int number = 0;
  for (const auto& [name, array] : state) (number++ % 2 == 0 ? first : second).write(name, array);
  first.finish_share();
  second.finish_share();
  first.finish();
  return files_of(scratch.path() / "to");
}

TEST(CheckpointWriters, WriteWhatT5xWrites) {
  const auto folders = testing::fixture_folders("checkpoint");
  ASSERT_FALSE(folders.empty());
  for (const auto& folder : folders) {
    SCOPED_TRACE(folder);
    const HostArrays state = read_safetensors(folder / "values.safetensors");
    const fs::path theirs = folder / "t5x" / "checkpoint_3";
    if (!is_there(theirs)) continue;
    const auto ours = files_of_t5x(state), want = files_of(theirs);
    for (const auto& [name, text] : want) {
      ASSERT_TRUE(ours.contains(name)) << name;
      EXPECT_TRUE(ours.at(name) == text) << name;
    }
    EXPECT_EQ(ours.size(), want.size());
    HostArrays used = state;  // as a checkpoint of ours has it
    std::erase_if(used, [](const auto& array) {
      return array.first.starts_with("state/") && array.second.shape == std::vector<int64_t>{1};
    });
    EXPECT_LT(used.size(), state.size());
    EXPECT_TRUE(files_of_t5x(used) == ours) << "Adafactor's unused slots";
  }
}

/// T5X's init_param_state makes four slots of every parameter, of one of shape [1] too.
TEST(CheckpointWriters, SlotsOfAParameterOfOneNumberAreT5xsAndReadBack) {
  for (const bool momentum : {false, true}) {
    SCOPED_TRACE(momentum);
    HostArrays state;
    const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
      HostArray& array = state[name] = HostArray(DType::f32, shape);
      std::ranges::fill(array.as<float>(), static_cast<float>(state.size()));
    };
    for (const auto& [name, shape] :
         std::map<std::string, std::vector<int64_t>>{{"matrix", {2, 3}}, {"one", {1}}}) {
      add("target/" + name, shape);
      for (const char* slot : {"v", "m"})
        if (*slot == 'v' || momentum) add("state/param_states/" + name + "/" + slot, shape);
    }
    HostArrays all = state;
    for (const char* name : {"matrix", "one"})
      for (const char* slot : {"m", "v", "v_col", "v_row"})
        all.try_emplace(fmt::format("state/param_states/{}/{}", name, slot), DType::f32,
                        std::vector<int64_t>{1});
    EXPECT_TRUE(files_of_t5x(state) == files_of_t5x(all));
    const Scratch scratch;
    const auto to = copy(save(scratch.path() / "from", state), "t5x", scratch.path() / "to", 1);
    EXPECT_TRUE(same_state(contents_of(*open_checkpoint(to)), state));
  }
}

TEST(NewFolder, AppearsWholeOrNotAtAll) {
  const Scratch scratch;
  const fs::path target = scratch.path() / "sub" / "model";
  {
    const NewFolder folder(target);
    write_new_file(folder.prepared() / "a", "text");
    EXPECT_FALSE(is_there(target));
  }
  EXPECT_EQ(names_in(target.parent_path()), std::vector<std::string>{});  // nothing is left
  make_folders(NewFolder::prepared_path(target) / "b");                   // of a killed process
  {
    NewFolder folder(target);
    EXPECT_EQ(names_in(folder.prepared()), std::vector<std::string>{});
    write_new_file(folder.prepared() / "a", "text");
    error_of(ExitCode::kUsage, [&] { NewFolder other(target); });  // two at a time
    folder.commit();
  }
  EXPECT_EQ(names_in(target.parent_path()), std::vector<std::string>{"model"});
  EXPECT_EQ(read_file(target / "a"), "text");
  const std::string message = error_of(ExitCode::kUsage, [&] { NewFolder again(target); });
  EXPECT_NE(message.find("there is something already"), std::string::npos) << message;
  EXPECT_EQ(read_file(target / "a"), "text");
}

}  // namespace
}  // namespace quintet
