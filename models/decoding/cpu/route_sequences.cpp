#include <algorithm>

#include "kernels/moe/route.h"
#include "models/decoding/cpu/experts.h"
#include "runtime/base/host_array.h"

namespace quintet::decoding {
namespace {

/// Of each sequence an expert serves the first `capacity` tokens that chose it.
ExpertRows within_capacity(const ExpertRows& routed, const Sequences& sequences, int64_t capacity) {
  ExpertRows served{.begin = {0}, .row = {}, .gate = {}};
  for (size_t e = 0; e + 1 < routed.begin.size(); ++e) {
    size_t item = 0;
    int64_t count = 0;
    for (auto i = static_cast<size_t>(routed.begin[e]);
         i < static_cast<size_t>(routed.begin[e + 1]); ++i) {
      for (; routed.row[i] >= sequences.begin[item + 1]; ++item) count = 0;
      if (++count > capacity) continue;
      served.row.push_back(routed.row[i]);
      served.gate.push_back(routed.gate[i]);
    }
    served.begin.push_back(std::ssize(served.row));
  }
  return served;
}

int64_t longest(const Sequences& s) {
  return 1 + *std::max_element(s.positions.begin(), s.positions.end());
}

/// How experts serve whole sequences.
ops::RouteOptions routing_for(const MoeConfig& moe, const Sequences& s) {
  return s.whole_batch ? routing_of(moe, s.items(), longest(s), false)
                       : inference_routing(moe, s.items(), longest(s));
}

/// A batch as experts see it that choose among its tokens: padding, zeros, is back in it.
struct PaddedBatch {
  int64_t batch, length, embed;
  std::vector<float> x;         // [batch, length, embed]
  std::vector<int64_t> row_of;  // [batch, length] in the sequences; -1: padding

  PaddedBatch(const Sequences& s, const float* rows, int64_t width)
      : batch(s.items()),
        length(longest(s)),
        embed(width),
        x(static_cast<size_t>(batch * length * embed)),
        row_of(static_cast<size_t>(batch * length), -1) {
    for (int64_t item = 0; item < batch; ++item)
      for (int64_t row = s.begin[static_cast<size_t>(item)];
           row < s.begin[static_cast<size_t>(item + 1)]; ++row) {
        const int64_t place = item * length + s.positions[static_cast<size_t>(row)];
        std::copy_n(rows + row * embed, embed, x.begin() + place * embed);
        row_of[static_cast<size_t>(place)] = row;
      }
  }
};

/// As training routes (kernels/moe/route.h).
ExpertRows routed_in_batch(const PackedExperts& experts, const float* rows,
                           const Sequences& sequences, std::vector<LayerRouting>* routings) {
  const int64_t count = std::ssize(experts.experts);
  const PaddedBatch padded(sequences, rows, std::ssize(experts.router) / count);
  const int64_t b = padded.batch, l = padded.length;
  const ops::RouteOptions options = routing_for(experts.moe, sequences);
  const int64_t choices = options.choices(count);
  const std::vector<int64_t> by_choice{b, l, choices};
  enum Result : size_t {
    kGates = 0,
    kAuxiliary = 2,
    kZLoss = 3,
    kChoices = 5,
    kOffsets = 6,
    kCounts = 9,
    kLoad = 10
  };
  HostArray results[] = {{DType::f32, by_choice},
                         {DType::f32, {b, l, count}},
                         {DType::f32, {}},
                         {DType::f32, {}},
                         {DType::i32, by_choice},
                         {DType::i32, {b, options.packed_rows(b, l, count)}},
                         {DType::i32, {b, count + 1}},
                         {DType::i32, by_choice},
                         {DType::i32, by_choice},
                         {DType::f32, {5}},
                         {DType::f32, {count}}};
  std::vector<View> out;
  for (HostArray& array : results) {
    out.push_back(View::of(reinterpret_cast<uint8_t*>(array.bytes.data()), array.shape));
    out.back().dtype = array.dtype;
  }
  const View in[] = {View::of(padded.x.data(), std::vector{b, l, padded.embed}),
                     View::of(experts.router.data(), std::vector{padded.embed, count}),
                     experts.router_bias.empty()
                         ? View::none()
                         : View::of(experts.router_bias.data(), std::vector{count})};
  route_cpu(in, out, options.attributes(b, l, count), {});
  if (routings != nullptr)
    routings->push_back({Tensor::scalar(results[kAuxiliary].as<float>()[0]),
                         Tensor::scalar(results[kZLoss].as<float>()[0]),
                         Tensor::from_host(results[kCounts], {"counts"}),
                         Tensor::from_host(results[kLoad], {"expert"})});
  const auto gates = results[kGates].as<float>();
  const auto packed = results[kChoices].as<int32_t>(), offsets = results[kOffsets].as<int32_t>();
  ExpertRows routed{.begin = {0}, .row = {}, .gate = {}};
  for (size_t e = 0; e < static_cast<size_t>(count); ++e) {
    for (auto i = static_cast<size_t>(offsets[e]); i < static_cast<size_t>(offsets[e + 1]); ++i) {
      const auto choice = static_cast<size_t>(packed[i]);
      const int64_t row = padded.row_of[choice / static_cast<size_t>(choices)];
      if (row < 0) continue;
      routed.row.push_back(row);
      routed.gate.push_back(gates[choice]);
    }
    routed.begin.push_back(std::ssize(routed.row));
  }
  return routed;
}

}  // namespace

ExpertRows route_sequences(const PackedExperts& experts, const float* x, const Sequences& sequences,
                           std::vector<LayerRouting>* routings) {
  if (experts.moe.router.kind == Router::experts_choose || sequences.whole_batch)
    return routed_in_batch(experts, x, sequences, routings);
  return within_capacity(route_rows(experts, x, sequences.size()), sequences,
                         experts.moe.expert_capacity);
}

int64_t most_chosen(const MoeConfig& moe, const Sequences& sequences) {
  if (moe.router.kind != Router::experts_choose)
    return sequences.size() * moe.router.num_selected_experts;
  const int64_t items = sequences.items();
  return items *
         routing_for(moe, sequences).packed_rows(items, longest(sequences), moe.num_experts);
}

ExpertRows part_of(const ExpertRows& routed, int64_t first, int64_t count) {
  ExpertRows part{.begin = {0}, .row = {}, .gate = {}};
  for (size_t e = 0; e + 1 < routed.begin.size(); ++e) {
    for (auto i = static_cast<size_t>(routed.begin[e]);
         i < static_cast<size_t>(routed.begin[e + 1]); ++i) {
      if (routed.row[i] < first || routed.row[i] >= first + count) continue;
      part.row.push_back(routed.row[i] - first);
      part.gate.push_back(routed.gate[i]);
    }
    part.begin.push_back(std::ssize(part.row));
  }
  return part;
}

}  // namespace quintet::decoding
