#include "tests/ops/buffers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/base/memory/huge_pages.h"

namespace quintet::testing {
namespace {

constexpr size_t kGuard = 64;
constexpr std::byte kGuardByte{0xa5};

void store_one(std::byte* at, DType dtype, double value) {
  const auto put = [at](auto v) { std::memcpy(at, &v, sizeof v); };
  switch (dtype) {
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::bf16:
      return put(bfloat16(static_cast<float>(value)));
    case DType::f64:
      return put(value);
    case DType::i32:
      return put(static_cast<int32_t>(value));
    case DType::i64:
      return put(static_cast<int64_t>(value));
    case DType::u32:
      return put(static_cast<uint32_t>(value));
    case DType::u8:
    case DType::boolean:
      return put(static_cast<uint8_t>(value));
    default:
      throw Bug(fmt::format("the op tests have no {} buffers", name_of(dtype)));
  }
}

double load_one(const std::byte* at, DType dtype) {
  const auto get = [at]<typename T>(T v) {
    std::memcpy(&v, at, sizeof v);
    return static_cast<double>(v);
  };
  switch (dtype) {
    case DType::f32:
      return get(float{});
    case DType::bf16: {
      bfloat16 v;
      std::memcpy(&v, at, sizeof v);
      return static_cast<double>(static_cast<float>(v));
    }
    case DType::f64:
      return get(double{});
    case DType::i32:
      return get(int32_t{});
    case DType::i64:
      return get(int64_t{});
    case DType::u32:
      return get(uint32_t{});
    case DType::u8:
    case DType::boolean:
      return get(uint8_t{});
    default:
      throw Bug(fmt::format("the op tests have no {} buffers", name_of(dtype)));
  }
}

}  // namespace

Buffer::Buffer(Shape shape, DType dtype, Shape origin, Shape global, int shift) {
  view_.dtype = dtype;
  view_.rank = static_cast<int>(shape.size());
  QT_ASSERT(view_.rank <= kMaxRank);
  std::copy(shape.begin(), shape.end(), view_.sizes.begin());
  view_.global = view_.sizes;
  std::copy(origin.begin(), origin.end(), view_.origin.begin());
  std::copy(global.begin(), global.end(), view_.global.begin());
  size_ = static_cast<size_t>(view_.elements() * size_of(dtype));
  // Like the runtime's memory: large blocks on huge pages, so that benchmarks see the same speed.
  capacity_ = (size_ + 2 * kGuard + 64 + static_cast<size_t>(shift) * 8 + 63) / 64 * 64;
  memory_.reset(static_cast<std::byte*>(allocate_on_huge_pages(static_cast<int64_t>(capacity_))));
  if (memory_ == nullptr) throw std::bad_alloc();
  std::fill_n(memory_.get(), capacity_, kGuardByte);
  start_ = kGuard + static_cast<size_t>(shift * size_of(dtype));
  view_.pointer = memory_.get() + start_;
}

void Buffer::poison() {
  const double poison = is_floating(view_.dtype) ? std::numeric_limits<double>::quiet_NaN() : 0x55;
  for (int64_t i = 0; i < (absent() ? 0 : view_.elements()); ++i)
    store_one(memory_.get() + start_ + static_cast<size_t>(i * size_of(view_.dtype)), view_.dtype,
              poison);
}

bool Buffer::guards_intact() const {
  for (size_t i = 0; i < capacity_; ++i)
    if ((i < start_ || i >= start_ + size_) && memory_.get()[i] != kGuardByte) return false;
  return true;
}

std::span<const std::byte> Buffer::bytes() const { return {memory_.get() + start_, size_}; }

void Buffer::store(const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    store_one(memory_.get() + start_ + i * static_cast<size_t>(size_of(view_.dtype)), view_.dtype,
              values[i]);
}

std::vector<double> Buffer::load() const {
  std::vector<double> values(absent() ? 0 : static_cast<size_t>(view_.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = load_one(memory_.get() + start_ + i * static_cast<size_t>(size_of(view_.dtype)),
                         view_.dtype);
  return values;
}

Buffer make_input(const Operand& operand, std::mt19937_64& random, int shift) {
  if (operand.absent) return Buffer();
  Buffer buffer(operand.shape, operand.dtype, operand.origin, operand.global, shift);
  std::vector<double> values(static_cast<size_t>(buffer.view().elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = operand.value(static_cast<int64_t>(i), random);
  buffer.store(values);
  return buffer;
}

Buffer make_output(const Result& result, int shift) {
  if (result.absent) return Buffer();
  Buffer buffer(result.shape, result.dtype, result.origin, result.global, shift);
  buffer.poison();
  return buffer;
}

Array to_array(const Buffer& buffer) {
  const View& v = buffer.view();
  Array a;
  a.absent = buffer.absent();
  if (a.absent) return a;
  const auto axes = [&v](const std::array<int64_t, kMaxRank>& from) {
    return Shape(from.begin(), from.begin() + v.rank);
  };
  a.shape = axes(v.sizes);
  a.origin = axes(v.origin);
  a.global = axes(v.global);
  a.values = buffer.load();
  return a;
}

void launch(Kernel kernel, std::span<const Buffer* const> in, std::span<Buffer* const> out,
            const Attrs& attrs) {
  std::vector<View> in_views, out_views;
  for (const Buffer* b : in) in_views.push_back(b->view());
  for (const Buffer* b : out) out_views.push_back(b->view());
  kernel(in_views, out_views, attrs, Stream{});
}

void Prepared::run(const OpCase& c) {
  std::vector<const Buffer*> in;
  std::vector<Buffer*> out;
  for (const Buffer& b : inputs) in.push_back(&b);
  for (Buffer& b : outputs) out.push_back(&b);
  launch(c.kernel, in, out, c.attrs);
}

Prepared prepare(const OpCase& c, int shift) {
  std::mt19937_64 random(c.seed);
  Prepared p;
  for (const Operand& o : c.inputs) p.inputs.push_back(make_input(o, random, shift));
  for (const Result& r : c.outputs) p.outputs.push_back(make_output(r, shift));
  return p;
}

OpCase call_case(const OpCase& c, const GradCall& call, const std::vector<const Buffer*>& operands,
                 const std::vector<Buffer>& results) {
  OpCase of{.name = c.name + "/gradient", .kernel = call.kernel};
  for (const Buffer* operand : operands) {
    const Array a = to_array(*operand);
    Operand& given = of.inputs.emplace_back(
        a.absent ? no_operand() : values(a.shape, a.values, operand->view().dtype));
    given.origin = a.origin, given.global = a.global;
  }
  for (const Buffer& result : results) {
    const Array a = to_array(result);
    of.outputs.push_back({a.shape, result.view().dtype, a.absent, a.origin, a.global});
  }
  of.attrs = c.attrs, of.adds = call.adds;
  of.tolerance = c.grad_tolerance, of.seed = c.seed;
  return of;
}

Adding::Adding(const OpCase& c, bool in_place, int shift)
    : case_(c), in_place_(in_place), prepared_(prepare(c, shift)), addends_(c.outputs.size()) {
  std::mt19937_64 random(c.seed + 2);
  for (const int i : c.adds) {
    const Result& r = c.outputs[static_cast<size_t>(i)];
    Operand addend = normal(r.shape);
    addend.dtype = r.dtype, addend.absent = r.absent;
    Buffer& made = addends_[static_cast<size_t>(i)] = make_input(addend, random, shift);
    if (in_place) prepared_.outputs[static_cast<size_t>(i)].store(made.load());
  }
}

std::vector<Buffer*> Adding::operands() {
  std::vector<Buffer*> all;
  for (Buffer& b : prepared_.inputs) all.push_back(&b);
  for (size_t i = 0; i < addends_.size(); ++i)
    all.push_back(in_place_ && !addends_[i].absent() ? &prepared_.outputs[i] : &addends_[i]);
  return all;
}

std::vector<Buffer*> Adding::results() {
  std::vector<Buffer*> all;
  for (Buffer& b : prepared_.outputs) all.push_back(&b);
  return all;
}

std::string Adding::damage(int shift) const {
  const Adding untouched(case_, in_place_, shift);
  std::string found;
  const auto look = [&](const std::vector<Buffer>& all, const std::vector<Buffer>* before,
                        const char* what) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].absent()) continue;
      if (!all[i].guards_intact()) found += fmt::format("beside {} {}; ", what, i);
      if (before != nullptr && !std::ranges::equal(all[i].bytes(), (*before)[i].bytes()))
        found += fmt::format("{} {}; ", what, i);
    }
  };
  look(prepared_.inputs, &untouched.prepared_.inputs, "operand");
  look(addends_, &untouched.addends_, "addend");
  look(prepared_.outputs, nullptr, "result");
  return found;
}

std::vector<double> Adding::expected(size_t i, std::vector<double> alone) const {
  const std::vector<double> addend = addends_[i].load();
  for (size_t j = 0; j < addend.size(); ++j) alone[j] += addend[j];
  return alone;
}

}  // namespace quintet::testing
