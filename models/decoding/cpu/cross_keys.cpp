#include "models/decoding/cpu/cross_keys.h"

#include <omp.h>

#include <algorithm>

#include "models/decoding/cpu/layer_parts.h"

namespace quintet::decoding {

int64_t cross_floats(const StackSpec& decoder, int64_t length, CacheType type) {
  return decoder.num_layers * decoder.layer.kv_heads() *
         SharedKeys::floats(length, decoder.layer.head_dim, type);
}

std::vector<SharedKeys> lay_out_cross(const StackSpec& decoder, const Sequences& sequences,
                                      CacheType type, std::shared_ptr<float>& memory) {
  int64_t floats = 0;
  for (int64_t i = 0; i < sequences.items(); ++i)
    floats += cross_floats(decoder, sequences.length(i), type);
  memory = HugeArena().allocate(floats);
  float* next = memory.get();
  std::vector<SharedKeys> keys;
  for (int64_t layer = 0; layer < decoder.num_layers; ++layer)
    for (int64_t i = 0; i < sequences.items(); ++i)
      for (int64_t h = 0; h < decoder.layer.kv_heads(); ++h) {
        keys.push_back(SharedKeys::at(next, sequences.length(i), decoder.layer.head_dim, type));
        next += SharedKeys::floats(sequences.length(i), decoder.layer.head_dim, type);
      }
  return keys;
}

void finish_encoding(const PackedNetwork& network, const Sequences& sequences,
                     std::span<float> encoded, std::span<const SharedKeys> keys) {
  const LayerConfig& layer_config = network.spec().decoder.layer;
  const auto& layers = network.decoder().layers;
  const int64_t heads = layer_config.kv_heads(), d = layer_config.head_dim,
                e = layer_config.emb_dim;
  const int64_t joined = layer_config.kv_width(), items = sequences.items(),
                rows = sequences.size();
  QT_ASSERT(keys.empty() || keys.size() == layers.size() * static_cast<size_t>(items * heads));
  std::vector<int64_t> item_of;
  for (int64_t i = 0; i < items; ++i)
    item_of.resize(static_cast<size_t>(sequences.begin[static_cast<size_t>(i + 1)]), i);
#pragma omp parallel
  {
    PackedRows packed;
    std::vector<float> block;
    const Part part{omp_get_thread_num(), omp_get_num_threads()};
    const int64_t size = prefill_block_rows(rows, part.count), blocks = (rows + size - 1) / size;
    for (int64_t b = part.begin(blocks); b < part.end(blocks); ++b) {
      const int64_t first = b * size, count = std::min(size, rows - first);
      packed.pack_normalized(encoded.data() + first * e, count, e, network.encoder().norm.data(),
                             kNormEpsilon);
      packed.unpack(encoded.data() + first * e);
      block.resize(static_cast<size_t>(count * 2 * joined));
      for (size_t layer = 0; !keys.empty() && layer < layers.size(); ++layer) {
        const PackedMatrix& w = layers[layer].cross->key_value;
        multiply(packed, w, {0, w.panels()},
                 [&](const Tile& tile) { store_tile(tile, block.data(), 2 * joined); });
        for (int64_t r = 0; r < count; ++r) {
          const int64_t item = item_of[static_cast<size_t>(first + r)];
          const int64_t index = first + r - sequences.begin[static_cast<size_t>(item)];
          const float* row = block.data() + r * 2 * joined;
          for (int64_t h = 0; h < heads; ++h)
            keys[(layer * static_cast<size_t>(items) + static_cast<size_t>(item)) *
                     static_cast<size_t>(heads) +
                 static_cast<size_t>(h)]
                .set(index, row + h * d, row + joined + h * d, d);
        }
      }
    }
  }
}

}  // namespace quintet::decoding
