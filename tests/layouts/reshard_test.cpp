// Changes of layout keep the array, whatever the steps; gradients go back to where they belong.

#include "runtime/execution/reshard.h"

#include <gtest/gtest.h>

#include "runtime/execution/tape.h"
#include "runtime/mesh/reshard_plan.h"
#include "runtime/ops/ops.h"
#include "tests/layouts/run.h"

namespace quintet::testing {
namespace {

const Spec kSpec{{{"a", 8}, {"b", 4}, {"c", 12}}, DType::f32};

/// Element i of the whole array has the value i; of an open sum each rank has an equal part.
Tensor numbered(const Layout& layout) {
  const Tensor x(kSpec, layout, full_slice(kSpec));
  const float parts =
      static_cast<float>(parts_of(layout.partial, ExecutionContext::current().sharding->mesh()));
  HostArray values(DType::f32, x.block().sizes);
  size_t at = 0;
  for (int64_t a = 0; a < x.block().sizes[0]; ++a)
    for (int64_t b = 0; b < x.block().sizes[1]; ++b)
      for (int64_t c = 0; c < x.block().sizes[2]; ++c)
        values.as<float>()[at++] =
            static_cast<float>(((x.block().origin[0] + a) * 4 + x.block().origin[1] + b) * 12 +
                               x.block().origin[2] + c) /
            parts;
  x.set(values);
  return x;
}

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  const std::vector<MeshAxes> shardings{{}, {"x"}, {"y"}, {"x", "y"}, {"y", "x"}};
  for (const MeshAxes& a : shardings)
    for (const MeshAxes& b : shardings)
      for (const MeshAxes& c : shardings) {
        MeshAxes used;
        for (const MeshAxes& axes : {a, b, c}) used.insert(used.end(), axes.begin(), axes.end());
        std::sort(used.begin(), used.end());
        if (std::adjacent_find(used.begin(), used.end()) == used.end())
          all.push_back({{a, b, c}, {}});
      }
  return all;
}

const Partitioning kMesh{{{"x", 2}, {"y", 2}}, {}};

TEST(Reshard, KeepsTheArray) {
  on_ranks(kMesh, [](Comm&) {
    const std::vector<Layout> all = layouts();
    for (Layout from : all)
      for (const Layout& to : all) {
        // An axis that shards nothing may have a sum open.
        for (const char* axis : {"", "x"}) {
          const bool in_use = std::any_of(
              from.dims.begin(), from.dims.end(),
              [](const MeshAxes& d) { return std::find(d.begin(), d.end(), "x") != d.end(); });
          if (*axis != 0 && in_use) continue;
          from.partial = *axis != 0 ? MeshAxes{axis} : MeshAxes{};
          const Tensor got = resharded(numbered(from), to), want = numbered(to);
          ASSERT_EQ(got.block(), want.block());
          ASSERT_EQ(got.to_host().bytes, want.to_host().bytes)
              << to_string(kSpec, from) << " -> " << to_string(kSpec, to);
        }
        from.partial.clear();
      }
  });
}

TEST(Reshard, SendsGradientsBack) {
  on_ranks(kMesh, [](Comm&) {
    const Layout rows{{{"x"}, {}, {}}, {}}, columns{{{}, {}, {"y", "x"}}, {}};
    Tensor x = numbered(rows);
    x.set_needs_grad(true);
    Tape tape;
    Tensor y;
    {
      const Tape::Recording recording(tape);
      y = ops::scale(reshard(x, columns), 3);
    }
    EXPECT_EQ(y.layout(), columns);
    tape.backward({y}, {numbered(columns)});
    const Tensor grad = x.grad();
    ASSERT_EQ(grad.layout(), rows);
    const HostArray got = grad.to_host(), want = numbered(rows).to_host();
    for (size_t i = 0; i < want.as<float>().size(); ++i)
      ASSERT_EQ(got.as<float>()[i], 3 * want.as<float>()[i]);
  });
}

}  // namespace
}  // namespace quintet::testing
