// Saving, keeping, restoring: what a training run does on a good day.

#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "checkpoint/arrays/blocks.h"
#include "checkpoint/hdf5_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/region_reader.h"
#include "checkpoint/save.h"
#include "tests/checkpoint/scratch.h"
#include "tests/checkpoint/thread_hosts.h"

namespace quintet {
namespace {

using testing::error_of;
using testing::filled;
using testing::same_state;
using testing::Scratch;
using testing::slices_of;
using testing::small_state;
using testing::ThreadHosts;

TEST(Checkpoint, RestoresWhatWasSaved) {
  const Scratch scratch;
  const HostArrays state = small_state();
  const FolderLock lock(scratch.path() / "model");
  CheckpointManager manager(lock, {.run_id = "run \"1\""});
  EXPECT_EQ(manager.latest_step(), std::nullopt);
  EXPECT_EQ(manager.latest_whole(), nullptr);
  manager.save(7, slices_of(state), R"({"data":{"epoch":2,"at":123456789012345},"loss":0.1})");
  EXPECT_EQ(manager.latest_whole()->step(), 7);
  const Checkpoint restored = read_checkpoint(checkpoint_path(lock.folder(), 7));
  EXPECT_EQ(restored.step, 7);
  EXPECT_EQ(restored.run_id, "run \"1\"");
  EXPECT_EQ(restored.state_json, R"({"data":{"epoch":2,"at":123456789012345},"loss":0.1})");
  EXPECT_TRUE(same_state(restored.arrays, state));
  EXPECT_TRUE(
      same_state(read_checkpoint(checkpoint_path(lock.folder(), 7), Verify::size).arrays, state));
}

/// A tensor [n] of so many slices a rank, at the places where `origin` has them.
Manifest manifest_of(int64_t slices, int64_t length,
                     const std::function<int64_t(int64_t)>& origin) {
  Manifest manifest{.step = 3, .run_id = "r", .files = {}, .tensors = {}};
  manifest.files = {{data_file_name(0, 1), slices * length * 4, 5}, {kStateName, 1, 6}};
  ManifestTensor& tensor = manifest.tensors["target/x"];
  tensor.shape = {slices * length};
  for (int64_t i = 0; i < slices; ++i)
    tensor.slices.push_back({.dataset = fmt::format("target/x_{}", i),
                             .origin = {origin(i)},
                             .sizes = {length},
                             .crc = static_cast<uint32_t>(i),
                             .extents = {{i * length * 4, length * 4}}});
  return manifest;
}

TEST(ManifestOfManyRanks, IsReadAndSentInFewBytes) {
  const Manifest manifest = manifest_of(5000, 3, [](int64_t i) { return 3 * i; });
  const std::string text = manifest_text(manifest), bytes = packed(manifest);
  EXPECT_EQ(manifest_text(parse_manifest(text, "manifest")), text);
  EXPECT_EQ(manifest_text(unpacked(bytes)), text);
  EXPECT_LT(bytes.size() * 4, text.size());
  for (const size_t cut : {size_t{1}, bytes.size() / 2, bytes.size() - 1})
    testing::error_of(ExitCode::kData, [&] { unpacked(bytes.substr(0, cut)); });
}

/// Host 0 of many, whose others have handed on what they have.
class FirstOfMany final : public HostGroup {
 public:
  explicit FirstOfMany(int count, int64_t tensors) : count_(count), tensors_(tensors) {}
  int count() const override { return count_; }
  Manifest share(int host) const {
    Manifest manifest{.step = 3, .run_id = "r", .hosts = count_, .files = {}, .tensors = {}};
    manifest.files = {{data_file_name(host, count_), tensors_ * 16, 5}};
    for (int64_t i = 0; i < tensors_; ++i)
      manifest.tensors[fmt::format("target/layer_{}/kernel", i)] = {
          .shape = {count_, 4},
          .slices = {{.dataset = fmt::format("target/layer_{}/kernel", i),
                      .origin = {host, 0},
                      .sizes = {1, 4},
                      .crc = 77,
                      .extents = {{i * 16, 16}}}}};
    return manifest;
  }
  std::string hear(int host) override {
    Manifest joined = share(host);
    for (int next = host + 1; next < std::min(2 * host, count_); ++next)
      merge_part(joined, share(next));
    texts.push_back(packed(joined));
    return texts.back();
  }
  std::vector<std::string> texts;

 private:
  int count_;
  int64_t tensors_;
};

TEST(ManifestOfManyRanks, IsJoinedFromSharesOnce) {
  for (const int count : {2, 5, 512, 4096}) {
    FirstOfMany hosts(count, 20);
    Manifest whole = hosts.share(0);
    join_shares(whole, hosts);
    ASSERT_EQ(std::ssize(whole.files), count);
    for (int host = 0; host < count; ++host) {
      EXPECT_EQ(whole.files[static_cast<size_t>(host)].name, data_file_name(host, count));
      for (const auto& [name, tensor] : whole.tensors)
        EXPECT_EQ(tensor.slices[static_cast<size_t>(host)].origin[0], host) << name;
    }
    int rounds = 0;
    size_t bytes = 0, of_shares = 0;
    while ((1 << rounds) < count) ++rounds;
    for (const std::string& text : hosts.texts) bytes += text.size();
    for (int host = 1; host < count; ++host) of_shares += packed(hosts.share(host)).size();
    EXPECT_EQ(std::ssize(hosts.texts), rounds);
    EXPECT_LE(bytes, of_shares);
    const auto start = std::chrono::steady_clock::now();
    Manifest again = hosts.share(0);
    for (const std::string& text : hosts.texts) merge_part(again, unpacked(text));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fmt::print("{} hosts: {} messages, {:.1f} MB, {:.3f} s\n", count, rounds,
               static_cast<double>(bytes) / 1e6, seconds.count());
  }
}

TEST(ManifestOfManyRanks, HasNoSliceTwiceNorBesideTheGrid) {
  const auto refusal = [](const Manifest& manifest) {
    return testing::error_of(ExitCode::kData,
                             [&] { parse_manifest(manifest_text(manifest), "manifest"); });
  };
  for (const int64_t shift : {2, 1}) {  // onto the second one; half of it
    const auto moved = manifest_of(2, 2, [&](int64_t i) { return i == 0 ? 0 : 2 - shift; });
    EXPECT_NE(refusal(moved).find("overlap"), std::string::npos) << refusal(moved);
  }
  const auto odd = manifest_of(5000, 3, [](int64_t i) { return std::max<int64_t>(3 * i - 1, 0); });
  EXPECT_NE(refusal(odd).find("no grid"), std::string::npos) << refusal(odd);
}

TEST(Checkpoint, RestoresTensorsOfManyChunks) {
  const Scratch scratch;
  HostArrays state;
  state["wide"] = filled<float>({3, 700'001}, 1);       // a row is more than a chunk
  state["tall"] = filled<float>({90'001, 7}, 2);        // many rows are one
  state["deep"] = filled<float>({2, 3, 5, 70'000}, 3);  // a chunk in the middle axis
  const FolderLock lock(scratch.path());
  CheckpointManager manager(lock);
  manager.save(0, slices_of(state), "{}");
  EXPECT_TRUE(same_state(read_checkpoint(checkpoint_path(lock.folder(), 0)).arrays, state));
}

/// Layers of a network: some rank 1, 2 and 3 tensors each, of `width`.
HostArrays network(int layers, int64_t width) {
  HostArrays state = small_state();
  for (int i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("target/encoder/layers_{}/", i);
    state[layer + "norm/scale"] = filled<float>({width}, i);
    state[layer + "mlp/wi/kernel"] = filled<float>({width, 3 * width}, i + 1);
    state[layer + "attention/query/kernel"] = filled<float>({width, 2, width / 2}, i + 2);
  }
  return state;
}

TEST(Checkpoint, ReservesLittleMoreThanItWrites) {
  const Scratch scratch;
  const auto expect_near = [](int64_t reserved, const std::filesystem::path& file) {
    const auto written = static_cast<int64_t>(std::filesystem::file_size(file));
    EXPECT_GE(reserved, written) << file;
    EXPECT_LE(reserved, written + written / 4 + (16 << 10)) << file;
  };
  const FolderLock lock(scratch.path());
  CheckpointManager manager(lock, {.keep = 0});
  int64_t step = 0;
  for (const auto& [layers, width] :
       {std::pair(0, 2), {1, 8}, {4, 16}, {30, 16}, {30, 24}, {30, 128}, {100, 8}}) {
    SCOPED_TRACE(fmt::format("{} layers of {}", layers, width));
    const HostArrays state = network(layers, width);
    manager.save(++step, slices_of(state), "{}");
    const auto folder = checkpoint_path(lock.folder(), step);
    expect_near(most_data_bytes(slices_of(state)), folder / read_manifest(folder).files[0].name);
    expect_near(most_state_bytes(read_manifest(folder)), folder / kStateName);
  }
}

TEST(Checkpoint, ThatIsDeletedWhileItIsReadIsNotCalledDamaged) {
  const Scratch scratch;
  const FolderLock lock(scratch.path());
  CheckpointManager manager(lock);
  manager.save(1, slices_of(small_state()), "{}");
  const auto folder = checkpoint_path(lock.folder(), 1);
  const NativeCheckpointReader reader(folder);
  manager.remove(1);
  const TensorRegion region{"target/encoder/layers_0/mlp/wi_0/kernel", {0, 0}, {7, 13}};
  std::vector<std::byte> target(7 * 13 * sizeof(float));
  for (const std::function<void()>& read : {std::function<void()>([&] { reader.verify(); }),
                                            {[&] { reader.read(region, target.data()); }}}) {
    const std::string message = error_of(ExitCode::kData, read);
    EXPECT_NE(message.find(folder.string() + ": was deleted while it was read"), std::string::npos)
        << message;
  }
}

TEST(Checkpoint, BackgroundSaveHoldsTheValuesOfItsCall) {
  const Scratch scratch;
  HostArrays state = small_state(1);
  const HostArrays before = state;
  const FolderLock lock(scratch.path());
  CheckpointManager manager(lock, {.keep = 0});
  manager.save_async(1, slices_of(state), "{}");
  state = small_state(2);
  manager.save_async(2, slices_of(state), "{}");
  manager.finish();
  EXPECT_EQ(manager.steps(), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(same_state(read_checkpoint(checkpoint_path(lock.folder(), 1)).arrays, before));
  EXPECT_TRUE(same_state(read_checkpoint(checkpoint_path(lock.folder(), 2)).arrays, state));
}

TEST(Checkpoint, KeepsTheNewestAndThePinned) {
  const Scratch scratch;
  const HostArrays state = small_state();
  const FolderLock lock(scratch.path());
  CheckpointManager manager(lock, {.keep = 2});
  for (int64_t step : {5, 10, 15, 100}) {
    manager.save(step, slices_of(state), "{}");
    if (step == 5) testing::write_bytes(checkpoint_path(scratch.path(), 5) / "PINNED", "");
  }
  EXPECT_EQ(manager.steps(), (std::vector<int64_t>{5, 15, 100}));
  EXPECT_TRUE(same_state(read_checkpoint(checkpoint_path(lock.folder(), 5)).arrays,
                         state));  // PINNED belongs there
  // Going on from an earlier step: what was just saved stays, though two others are newer.
  manager.save(6, slices_of(state), "{}");
  EXPECT_EQ(manager.steps(), (std::vector<int64_t>{5, 6, 100}));
  manager.remove(5);
  EXPECT_EQ(manager.steps(), (std::vector<int64_t>{6, 100}));
}

TEST(Checkpoint, PinnedOnesCountAsKept) {
  const Scratch scratch;
  const FolderLock lock(scratch.path());
  CheckpointManager manager(lock, {.keep = 2});
  for (int64_t step : {1, 2}) manager.save(step, slices_of(small_state()), "{}");
  testing::write_bytes(checkpoint_path(scratch.path(), 2) / "PINNED", "");
  manager.save(3, slices_of(small_state()), "{}");
  EXPECT_EQ(manager.steps(), (std::vector<int64_t>{2, 3}));
  manager.save(4, slices_of(small_state()), "{}");
  EXPECT_EQ(manager.steps(), (std::vector<int64_t>{2, 3, 4}));
}

TEST(Checkpoint, APinnedOneThatIsSavedAgainStaysPinned) {
  const Scratch scratch;
  const FolderLock lock(scratch.path());
  CheckpointManager manager(lock, {.keep = 1});
  const auto pin = checkpoint_path(scratch.path(), 3) / "PINNED";
  manager.save(3, slices_of(small_state(1)), "{}");
  testing::write_bytes(pin, "the paper's");
  manager.save(3, slices_of(small_state(2)), "{}");
  EXPECT_EQ(read_file(pin), "the paper's");
  EXPECT_TRUE(
      same_state(read_checkpoint(checkpoint_path(lock.folder(), 3)).arrays, small_state(2)));
  manager.save(4, slices_of(small_state()), "{}");
  EXPECT_EQ(manager.steps(), (std::vector<int64_t>{3, 4}));
}

TEST(Checkpoint, AChoiceRemovesNeitherTheLastNorThePinned) {
  const Scratch scratch;
  const FolderLock lock(scratch.path());
  std::vector<std::string> warned;
  CheckpointOptions options;
  options.warn = [&](const std::string& text) { warned.push_back(text); };
  options.choose_removed = [](const std::vector<int64_t>& steps,
                              std::vector<std::string>& warnings) {
    warnings.emplace_back("all of them");
    return steps;
  };
  CheckpointManager manager(lock, options);
  manager.save(7, slices_of(small_state()), "{}");
  testing::write_bytes(checkpoint_path(scratch.path(), 7) / "PINNED", "");
  for (int64_t step : {8, 9}) manager.save(step, slices_of(small_state()), "{}");
  EXPECT_EQ(manager.steps(), (std::vector<int64_t>{7, 9}));
  EXPECT_EQ(warned, (std::vector<std::string>(3, "all of them")));
}

TEST(Checkpoint, SavingAStepAgainReplacesIt) {
  const Scratch scratch;
  const FolderLock lock(scratch.path());
  CheckpointManager manager(lock);
  manager.save(3, slices_of(small_state(1)), "{}");
  manager.save(3, slices_of(small_state(2)), "{}");
  EXPECT_TRUE(
      same_state(read_checkpoint(checkpoint_path(lock.folder(), 3)).arrays, small_state(2)));
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(scratch.path()))
    ++entries;
  EXPECT_EQ(entries, 2u) << "checkpoint_3 and LOCK";
}

TEST(Checkpoint, SameStateGivesTheSameBytes) {
  const Scratch scratch;
  for (const char* name : {"a", "b"}) {
    const FolderLock lock(scratch.path() / name);
    CheckpointManager(lock, {.run_id = "r"}).save(1, slices_of(small_state()), "{}");
    // delay: to another second, which HDF5 likes to note
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  }
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path() / "a/checkpoint_1")) {
    const auto other = scratch.path() / "b/checkpoint_1" / entry.path().filename();
    EXPECT_TRUE(read_file(entry.path()) == read_file(other)) << other;
  }
}

TEST(Checkpoint, FilesAreHardlyLargerThanTheirTensors) {
  const Scratch scratch;
  HostArrays state{{"a", filled<float>({1 << 20}, 1)}};
  for (int i = 0; i < 50; ++i) state[fmt::format("small/{}", i)] = filled<float>({64, 64}, i);
  int64_t bytes = 0;
  for (const auto& [name, array] : state) bytes += static_cast<int64_t>(array.bytes.size());
  const FolderLock lock(scratch.path());
  CheckpointManager manager(lock);
  manager.save(1, slices_of(state), "{}");
  struct stat info {};
  ASSERT_EQ(::stat((checkpoint_path(scratch.path(), 1) / "data-00000-of-00001.h5").c_str(), &info),
            0);
  const int64_t most = bytes + 16'384 + 51 * 4096;
  EXPECT_LE(info.st_size, most);
  EXPECT_LE(info.st_blocks * 512, most) << "reserved space was not given back";
}

TEST(Checkpoint, OldLeftoversAreRemovedAtTheStart) {
  const Scratch scratch;
  for (const char* name : {".tmp-checkpoint_4", ".trash-checkpoint_2"}) {
    std::filesystem::create_directories(scratch.path() / name / "deep");
    testing::write_bytes(scratch.path() / name / "data", "x");
  }
  testing::write_bytes(scratch.path() / ".config.gin.tmp-12-0", "x");
  testing::write_bytes(scratch.path() / "notes.txt", "mine");
  const FolderLock lock(scratch.path());
  const CheckpointManager manager(lock);
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path()))
    left.push_back(entry.path().filename().string());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"LOCK", "notes.txt"}));
}

TEST(Checkpoint, OnlyCanonicalNamesAreSteps) {
  const Scratch scratch;
  for (const char* name : {"checkpoint_0", "checkpoint_12", "checkpoint_007", "checkpoint_-1",
                           "checkpoint_", "checkpoint_1x", "checkpoint_99999999999999999999",
                           "damaged-checkpoint_5", ".tmp-checkpoint_6"})
    std::filesystem::create_directory(scratch.path() / name);
  testing::write_bytes(scratch.path() / "checkpoint_3", "a file");
  EXPECT_EQ(list_checkpoints(scratch.path()), (std::vector<int64_t>{0, 12}));
  EXPECT_TRUE(list_checkpoints(scratch.path() / "nowhere").empty());
}

/// The rows [row, row + rows) of a matrix as a slice.
TensorSlice rows_of(const std::string& name, const HostArray& array, int64_t row, int64_t rows) {
  TensorSlice slice = whole_slice(name, array);
  slice.origin[0] = row;
  slice.sizes[0] = rows;
  slice.data += row * array.shape[1] * size_of(array.dtype);
  return slice;
}

TEST(Checkpoint, HostsWriteTheirSlicesAndAnyPartReadsBack) {
  const Scratch scratch;
  const HostArray matrix = filled<float>({10, 6}, 1), other = filled<float>({4, 3}, 2);
  const FolderLock lock(scratch.path());
  auto meeting = std::make_shared<ThreadHosts::Meeting>(3);
  std::vector<std::thread> hosts;
  for (int host = 0; host < 3; ++host)
    hosts.emplace_back([&, host] {
      CheckpointManager manager(
          lock, {.run_id = "r", .hosts = std::make_shared<ThreadHosts>(meeting, host, 3)});
      const int64_t first[] = {0, 3, 7, 10};
      std::vector<TensorSlice> slices{
          rows_of("matrix", matrix, first[host], first[host + 1] - first[host])};
      if (host == 1) slices.push_back(whole_slice("other", other));
      manager.save(2, slices, host == 0 ? R"({"at":5})" : "{}");
    });
  for (std::thread& host : hosts) host.join();
  const auto folder = checkpoint_path(scratch.path(), 2);
  const Checkpoint whole = read_checkpoint(folder);
  EXPECT_TRUE(same_state(whole.arrays, {{"matrix", matrix}, {"other", other}}));
  EXPECT_EQ(whole.state_json, R"({"at":5})");
  const NativeCheckpointReader reader(folder);
  reader.verify(2, 3);
  std::vector<float> part(24), row(3);
  reader.read({"matrix", {2, 1}, {6, 4}}, reinterpret_cast<std::byte*>(part.data()));
  reader.read({"other", {3, 0}, {1, 3}}, reinterpret_cast<std::byte*>(row.data()));
  for (size_t r = 0; r < 6; ++r)
    for (size_t c = 0; c < 4; ++c)
      EXPECT_EQ(std::memcmp(&part[r * 4 + c], &matrix.as<float>()[(r + 2) * 6 + c + 1], 4), 0);
  EXPECT_EQ(std::memcmp(row.data(), &other.as<float>()[9], 12), 0);
  EXPECT_THROW(reader.read({"matrix", {5, 0}, {6, 6}}, nullptr), Error);
}

TEST(Checkpoint, OneHostsFailureIsEveryHostsFailure) {
  const Scratch scratch;
  const HostArray matrix = filled<float>({4, 2}, 1);
  const FolderLock lock(scratch.path());
  auto meeting = std::make_shared<ThreadHosts::Meeting>(2);
  std::vector<std::thread> hosts;
  std::atomic<int> failed{0};
  for (int host = 0; host < 2; ++host)
    hosts.emplace_back([&, host] {
      CheckpointManager manager(
          lock, {.run_id = "r", .hosts = std::make_shared<ThreadHosts>(meeting, host, 2)});
      std::vector<TensorSlice> slices{rows_of("matrix", matrix, 2 * host, 2)};
      if (host == 1) slices[0].name = "a//b";
      try {
        manager.save(2, slices, "{}");
      } catch (const Error&) {
        ++failed;
      }
    });
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(failed, 2);
  EXPECT_TRUE(list_checkpoints(scratch.path()).empty());
}

TEST(Checkpoint, ListsEveryDifferenceFromTheModel) {
  HostArrays found = small_state(), wanted = small_state();
  wanted["state/step"].dtype = DType::u32;
  wanted["state/long"] = filled<int64_t>({1, 2}, 1);
  found.erase("state/bytes");
  wanted.erase("state/double");
  const std::string message =
      error_of(ExitCode::kData, [&] { check_tensors_match("some/checkpoint_3", found, wanted); });
  for (const char* part :
       {"some/checkpoint_3", "4 differences",
        "state/step: is int32 [], expected "
        "uint32 []",
        "state/long: is int64 [2, 1], expected int64 [1, 2]",
        "state/bytes: missing, expected uint8 [11]", "state/double: not expected"})
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
  check_tensors_match("x", found, found);
}

TEST(Checkpoint, RefusesWhatItCouldNotReadBack) {
  const Scratch scratch;
  const HostArrays state{{"a", filled<float>({2}, 1)}};
  const FolderLock lock(scratch.path());
  CheckpointManager manager(lock);
  error_of(ExitCode::kUsage, [&] { manager.save(1, slices_of(state), "not json"); });
  error_of(ExitCode::kUsage, [&] { manager.save(1, slices_of(state), "[1]"); });
  error_of(ExitCode::kUsage, [&] { manager.save(-1, slices_of(state), "{}"); });
  for (const char* name : {"", "/a", "a/", "a/../b", "."})
    error_of(ExitCode::kUsage, [&] {
      manager.save(1, slices_of({{name, filled<float>({2}, 1)}}), "{}");
    });
  const HostArrays nested{{"a", filled<float>({2}, 1)}, {"a/b/c", filled<float>({2}, 2)}};
  error_of(ExitCode::kUsage, [&] { manager.save(1, slices_of(nested), "{}"); });
  EXPECT_TRUE(manager.steps().empty());
}

TEST(Blocks, ChunksAreContiguousAndCoverTheArrayOnce) {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {1}, {1000}, {7, 11}, {3, 5, 17}, {1, 1, 100}, {2, 300}, {300, 2}})
    for (int64_t target : {1, 4, 64, 100, 4096}) {
      const auto chunk = contiguous_chunk(sizes, 4, target);
      int64_t elements = 1, covered = 0, bytes = 4;
      for (int64_t size : sizes) elements *= size;
      for (int64_t size : chunk) bytes *= size;
      EXPECT_LE(bytes, std::max<int64_t>(target, 4));
      for (const ChunkPlace& place : chunk_places(sizes, chunk)) {
        int64_t index = 0;
        for (size_t i = 0; i < sizes.size(); ++i) index = index * sizes[i] + place.origin[i];
        EXPECT_EQ(index, covered) << "the chunk goes on where the last one ended";
        covered += place.elements;
      }
      EXPECT_EQ(covered, elements);
    }
}

}  // namespace
}  // namespace quintet
