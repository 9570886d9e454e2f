// state.h5 and the data files as the rest of the world sees them: through h5py.

#include <gtest/gtest.h>

#include <cstdlib>

#include "checkpoint/manifest.h"
#include "runtime/base/files/read_file.h"
#include "tests/checkpoint/scratch.h"

namespace quintet {
namespace {

using testing::Scratch;

/// A Python with h5py: $QUINTET_PYTHON, python3, or Debian's own.
std::string python_with_h5py() {
  const char* named = std::getenv("QUINTET_PYTHON");
  for (const std::string& python : {std::string(named != nullptr ? named : "python3"),
                                    std::string("python3"), std::string("/usr/bin/python3")})
    if (std::system((python + " -c 'import h5py, numpy' 2>/dev/null").c_str()) == 0) return python;
  return "";
}

void write_expected(const std::filesystem::path& folder, const HostArrays& state, bool missing) {
  std::filesystem::create_directories(folder);
  std::string lines;
  int number = 0;
  for (const auto& [name, array] : state) {
    const std::string file = fmt::format("{}.raw", number++);
    testing::write_bytes(
        folder / file,
        std::string(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size()));
    lines += fmt::format(
        "{{\"name\":\"{}\",\"dtype\":\"{}\",\"shape\":[{}],\"file\":\"{}\",\"missing\":{}}}\n",
        name, name_of(array.dtype), fmt::join(array.shape, ","), file, missing);
  }
  testing::write_bytes(folder / "tensors.jsonl", lines);
}

int run_h5py(const std::string& python, const std::filesystem::path& checkpoint,
             const std::filesystem::path& expected) {
  return std::system(fmt::format("{} '{}/tests/checkpoint/read_with_h5py.py' '{}' '{}'", python,
                                 QUINTET_SOURCE_DIR, checkpoint.string(), expected.string())
                         .c_str());
}

TEST(StateFile, H5pyReadsWholeTensorsAlsoAfterAMove) {
  const std::string python = python_with_h5py();
  if (python.empty()) GTEST_SKIP() << "no Python with h5py (QUINTET_PYTHON names another)";
  const Scratch scratch;
  HostArrays state = testing::small_state();
  state["target/tall"] = testing::filled<float>({90'001, 7}, 20);
  write_expected(scratch.path() / "expected", state, false);
  std::vector<TensorSlice> slices = testing::slices_of(state);
  {  // one tensor from two slices
    std::erase_if(slices, [](const TensorSlice& s) { return s.name == "state/bytes"; });
    for (int64_t row : {0, 4}) {
      TensorSlice slice = whole_slice("state/bytes", state["state/bytes"]);
      slice.origin = {row};
      slice.sizes = {row == 0 ? 4 : 7};
      slice.data += row;
      slices.push_back(slice);
    }
  }
  const FolderLock lock(scratch.path() / "model");
  CheckpointManager(lock).save(7, slices, "{}");
  EXPECT_TRUE(
      testing::same_state(read_checkpoint(checkpoint_path(lock.folder(), 7)).arrays, state));
  const auto moved = scratch.path() / "elsewhere";
  std::filesystem::rename(checkpoint_path(lock.folder(), 7), moved);
  EXPECT_EQ(run_h5py(python, moved, scratch.path() / "expected"), 0);
}

TEST(StateFile, H5pyRefusesAChunkThatHasChanged) {
  const std::string python = python_with_h5py();
  if (python.empty()) GTEST_SKIP() << "no Python with h5py (QUINTET_PYTHON names another)";
  const Scratch scratch;
  const HostArrays state{{"tall", testing::filled<float>({90'001, 7}, 4)}};
  const FolderLock lock(scratch.path() / "model");
  CheckpointManager(lock).save(7, testing::slices_of(state), "{}");
  const auto folder = checkpoint_path(lock.folder(), 7);
  const auto read = [&] {
    return std::system(fmt::format("{} -c \"import h5py; h5py.File('{}')['tall'][()]\" 2>/dev/null",
                                   python, (folder / "state.h5").string())
                           .c_str());
  };
  EXPECT_EQ(read(), 0);
  const Manifest manifest = read_manifest(folder);
  const auto& extents = manifest.tensors.at("tall").slices.at(0).extents;
  EXPECT_GT(extents.size(), 2u);
  const auto data = folder / manifest.files.at(0).name;
  const std::string whole = read_file(data);
  for (const Extent& extent : extents) {
    std::string changed = whole;
    changed[static_cast<size_t>(extent.offset + extent.bytes / 2)] ^= 1;
    testing::write_bytes(data, changed);
    EXPECT_NE(read(), 0) << extent.offset;
  }
}

TEST(StateFile, PartsThatAreGoneReadAsNaN) {
  const std::string python = python_with_h5py();
  if (python.empty()) GTEST_SKIP() << "no Python with h5py (QUINTET_PYTHON names another)";
  const Scratch scratch;
  const HostArrays state{{"a", testing::filled<float>({3}, 1)},
                         {"b", testing::filled<bfloat16>({2, 2}, 2)},
                         {"c", testing::filled<double>({5}, 3)}};
  write_expected(scratch.path() / "expected", state, true);
  const FolderLock lock(scratch.path() / "model");
  CheckpointManager(lock).save(7, testing::slices_of(state), "{}");
  const auto folder = checkpoint_path(lock.folder(), 7);
  std::filesystem::remove(folder / "data-00000-of-00001.h5");
  EXPECT_EQ(run_h5py(python, folder, scratch.path() / "expected"), 0);
}

}  // namespace
}  // namespace quintet
