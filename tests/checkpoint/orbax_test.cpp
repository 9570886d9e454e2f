// Checkpoints of Orbax: every value is read as it was written, and damage is told.

#include <gtest/gtest.h>

#include "checkpoint/open/open_checkpoint.h"
#include "checkpoint/orbax/orbax_reader.h"
#include "tests/checkpoint/foreign.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::fixture_folders;

/// Every checkpoint_<step> below checkpoint/*/orbax, with the values that are in it.
std::vector<std::pair<fs::path, HostArrays>> fixtures() {
  std::vector<std::pair<fs::path, HostArrays>> found;
  for (const fs::path& model : fixture_folders("checkpoint"))
    for (const int64_t step : list_checkpoints(model / "orbax"))
      found.emplace_back(checkpoint_path(model / "orbax", step),
                         read_safetensors(model / "values.safetensors"));
  return found;
}

TEST(OrbaxReader, ReadsFixturesBitForBit) {
  ASSERT_FALSE(fixtures().empty());
  for (const auto& [folder, want] : fixtures()) {
    SCOPED_TRACE(folder);
    for (const fs::path& path : {folder, folder / "state", folder.parent_path()}) {
      const orbax::Reader reader(find_checkpoint(path));
      EXPECT_TRUE(testing::same_state(testing::read_all(reader), want));
      EXPECT_TRUE(reader.verify().empty());
      EXPECT_EQ(checkpoint_path("", reader.step()), folder.filename());
    }
  }
}

TEST(OrbaxReader, ReadsRegions) {
  for (const auto& [folder, want] : fixtures()) {
    SCOPED_TRACE(folder);
    testing::check_regions(orbax::Reader(folder), want);
  }
}

}  // namespace
}  // namespace quintet
