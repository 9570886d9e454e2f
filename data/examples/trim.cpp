#include "data/examples/trim.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

struct SizeOf {
  int64_t operator()(const auto&) const { return 1; }
  template <typename T>
  int64_t operator()(const std::vector<T>& v) const {
    return static_cast<int64_t>(v.size());
  }
  template <typename T>
  int64_t operator()(const NdArray<T>& v) const {
    return v.shape.front();
  }
};

/// The part of `from` that both have, from the elements with these numbers of axis `axis`.
template <typename T>
void copy_block(const NdArray<T>& from, NdArray<T>& to, size_t axis, int64_t from_at,
                int64_t to_at) {
  const int64_t count = std::min(from.shape[axis], to.shape[axis]);
  if (axis + 1 == from.shape.size()) {
    std::copy_n(from.values.begin() + from_at, count, to.values.begin() + to_at);
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    copy_block(from, to, axis + 1, (from_at + i) * from.shape[axis + 1],
               (to_at + i) * to.shape[axis + 1]);
}

struct Resize {
  const Length& length;
  bool pads;
  void operator()(auto&) const { check_rank(0); }
  template <typename T>
  void operator()(std::vector<T>& v) const {
    check_rank(1);
    const auto size = static_cast<size_t>(length.first);
    if (pads || v.size() > size) v.resize(size);
  }
  template <typename T>
  void operator()(NdArray<T>& v) const {
    check_rank(v.shape.size());
    NdArray<T> out{v.shape, {}};
    const auto resize = [&](size_t axis, int64_t size) {
      out.shape[axis] = pads ? size : std::min(size, v.shape[axis]);
    };
    resize(0, length.first);
    for (size_t axis = 0; axis < length.inner.size(); ++axis) resize(axis + 1, length.inner[axis]);
    if (out.shape == v.shape) return;
    int64_t size = 1;
    for (const int64_t axis : out.shape) size *= axis;
    out.values.resize(static_cast<size_t>(size));
    copy_block(v, out, 0, 0, 0);
    v = std::move(out);
  }

 private:
  void check_rank(size_t rank) const {
    QT_CHECK_AS(ExitCode::kData, length.inner.empty() || length.inner.size() + 1 == rank,
                "the length {} is of {} dimensions, the feature has {}", length.text(),
                length.inner.size() + 1, rank);
  }
};

}  // namespace

std::vector<int64_t> Length::all() const {
  std::vector<int64_t> sizes = {first};
  sizes.insert(sizes.end(), inner.begin(), inner.end());
  return sizes;
}

std::string Length::text() const {
  return inner.empty() ? fmt::format("{}", first) : fmt::format("({})", fmt::join(all(), ", "));
}

int64_t length_of(const Value& value) { return std::visit(SizeOf{}, value); }

void trim(Value& value, const Length& length) { std::visit(Resize{length, false}, value); }

void trim_and_pad(Value& value, const Length& length) { std::visit(Resize{length, true}, value); }

}  // namespace quintet::data
