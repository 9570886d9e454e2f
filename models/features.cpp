#include "models/features.h"

#include "runtime/mesh/sharding.h"
#include "runtime/trainer/batch_rows.h"

namespace quintet {

const HostArray& feature(const HostArrays& batch, const std::string& name) {
  const auto found = batch.find(name);
  if (found == batch.end()) {
    std::vector<std::string> known;
    for (const auto& [key, array] : batch) known.push_back(key);
    fail(ExitCode::kData, "batch: feature '{}' is missing; it has: {}", name,
         fmt::join(known, ", "));
  }
  QT_CHECK_AS(ExitCode::kData, found->second.shape.size() == 2,
              "batch: feature '{}' must be [batch, length], found {} axes", name,
              found->second.shape.size());
  return found->second;
}

Tensor rows_of(const HostArrays& batch, Rows rows, const std::string& name) {
  return rows_of(batch, rows, [name](const HostArrays& from) { return feature(from, name); });
}

Tensor rows_of(const HostArrays& batch, Rows rows, const ArrayOf& make) {
  const HostArray array = make(batch);
  const int64_t parts = batch_part().count;
  const int64_t count = (rows.end - rows.begin) * parts;
  const Spec spec{{{axis::kBatch, rows.are_whole ? count : array.shape[0] * parts},
                   {axis::kLength, array.shape[1]}},
                  array.dtype};
  const Block global_slice{{rows.are_whole ? 0 : rows.begin * parts, 0}, {count, array.shape[1]}};
  const Sharding* sharding = ExecutionContext::current().sharding;
  // Of its rows a rank has all tokens, whatever shards the length of activations.
  Layout layout = Layout::replicated(2);
  if (sharding != nullptr) layout.dims[0] = sharding->row_axes();
  if (sharding != nullptr)
    sharding->block("batch", spec, layout, global_slice);  // refuses, naming it
  const Tensor tensor(spec, layout, global_slice);
  const int64_t offset = rows.begin * array.shape[1] * size_of(array.dtype);
  if (StepFeeds* feeds = ExecutionContext::current().feeds)
    feeds->add(tensor, offset, make);
  else
    tensor.device().copy_in(tensor.local().pointer, array.bytes.data() + offset, tensor.bytes());
  return tensor;
}

Tensor mask_segments(const HostArrays& batch, const std::string& tokens,
                     const std::string& segment_ids, Rows rows) {
  return rows_of(batch, rows, [=](const HostArrays& from) {
    const HostArray& token_array = feature(from, tokens);
    const bool packed = from.contains(segment_ids);
    HostArray segments(DType::i32, token_array.shape);
    const auto ids = token_array.as<int32_t>();
    for (size_t i = 0; i < ids.size(); ++i)
      segments.as<int32_t>()[i] = ids[i] <= 0 ? 0
                                  : packed    ? 1 + feature(from, segment_ids).as<int32_t>()[i]
                                              : 1;
    return segments;
  });
}

HostArray decoder_token_mask(const HostArrays& batch) {
  const HostArray& tokens = feature(batch, "decoder_input_tokens");
  HostArray mask(DType::i32, tokens.shape);
  const auto ids = tokens.as<int32_t>();
  const auto length = static_cast<size_t>(tokens.shape[1]);
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool starts = ids[i] == 0 && (i + 1) % length != 0 && ids[i + 1] > 0;
    mask.as<int32_t>()[i] = ids[i] > 0 || starts || i % length == 0 ? 1 : 0;
  }
  return mask;
}

Tensor decoder_token_mask(const HostArrays& batch, Rows rows) {
  return rows_of(batch, rows, [](const HostArrays& from) { return decoder_token_mask(from); });
}

}  // namespace quintet
