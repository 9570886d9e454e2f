// Normal numbers of many arrays, whole ones and blocks of sharded ones, against the CPU's.

#include "kernels/random/random.h"
#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {
namespace {

class Normals : public DeviceTest {};

/// A block of an array by the sizes of both.
struct Block {
  std::vector<int64_t> sizes, origin, global;
};
const std::vector<Block> kBlocks{
    {{5000}, {0}, {5000}},         {{}, {}, {}},
    {{3, 0}, {0, 0}, {3, 0}},      {{3, 700, 4}, {2, 0, 0}, {5, 700, 4}},
    {{40, 30}, {0, 60}, {40, 90}}, {{2, 30, 7}, {4, 30, 7}, {6, 60, 21}}};

std::vector<float> wanted(const Block& block, Key key) {
  int64_t all = 1, n = 1;
  for (const int64_t size : block.global) all *= size;
  for (const int64_t size : block.sizes) n *= size;
  std::vector<float> whole(static_cast<size_t>(all)), part;
  fill_normal(key, 0, whole);
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, element = 0, stride = 1;
    for (size_t axis = block.sizes.size(); axis-- > 0;) {
      element += (block.origin[axis] + rest % block.sizes[axis]) * stride;
      rest /= block.sizes[axis];
      stride *= block.global[axis];
    }
    part.push_back(whole[static_cast<size_t>(element)]);
  }
  return part;
}

TEST_F(Normals, AreTheCpusWhereverTheArrayIsCut) {
  on_every_schedule([&] {
    std::vector<OnDevice<float>> memory;
    std::vector<View> views;
    std::vector<Key> keys;
    for (size_t i = 0; i < kBlocks.size(); ++i) {
      const Block& block = kBlocks[i];
      int64_t n = 1;
      for (const int64_t size : block.sizes) n *= size;
      memory.emplace_back(device(), std::vector<float>(static_cast<size_t>(n), 7.0F),
                          static_cast<int>(i % 3));
      View& view = views.emplace_back(memory.back().view(block.sizes));
      std::ranges::copy(block.origin, view.origin.begin());
      std::ranges::copy(block.global, view.global.begin());
      keys.push_back(key_from_seed(static_cast<int64_t>(10 + i)));
    }
    device().kernels().fill_normals(views, keys, device().stream());
    device().synchronize();
    // Logarithms of two libraries, through a polynomial whose slope is largest at the ends.
    for (size_t i = 0; i < kBlocks.size(); ++i)
      expect_near(memory[i].back(), wanted(kBlocks[i], keys[i]), 4e-6, 1, std::to_string(i));
  });
}

}  // namespace
}  // namespace quintet::testing
