#pragma once
// Buffers of a case: random inputs and NaN-filled outputs between guard bytes.

#include <cstdlib>
#include <memory>

#include "tests/ops/harness.h"

namespace quintet::testing {

/// One array in memory with 64 guard bytes before and after it, `shift` elements away from a
/// 64-byte boundary.
class Buffer {
 public:
  Buffer(Shape shape, DType dtype, Shape origin, Shape global, int shift);
  /// An absent operand.
  Buffer() : view_(View::none()) {}
  Buffer(Buffer&&) = default;
  Buffer& operator=(Buffer&&) = default;

  const View& view() const { return view_; }
  bool absent() const { return view_.absent(); }
  /// NaN in every element (a large number for integers).
  void poison();
  bool guards_intact() const;
  /// The payload.
  std::span<const std::byte> bytes() const;
  /// Everything, guards included, and where the payload starts in it.
  std::span<std::byte> memory() { return {memory_.get(), capacity_}; }
  size_t start() const { return start_; }
  /// Rounds to the dtype.
  void store(const std::vector<double>& values);
  std::vector<double> load() const;

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t capacity_ = 0;
  size_t start_ = 0, size_ = 0;
  View view_;
};

Buffer make_input(const Operand& operand, std::mt19937_64& random, int shift);
Buffer make_output(const Result& result, int shift);
/// The buffer as the oracle sees it.
Array to_array(const Buffer& buffer);
/// Calls a kernel.
void launch(Kernel kernel, std::span<const Buffer* const> in, std::span<Buffer* const> out,
            const Attrs& attrs);

/// A case with its inputs made and its outputs poisoned.
struct Prepared {
  std::vector<Buffer> inputs, outputs;
  void run(const OpCase& c);
};
Prepared prepare(const OpCase& c, int shift);
/// A gradient call with these operands and results like these, as a case without an oracle.
OpCase call_case(const OpCase& c, const GradCall& call, const std::vector<const Buffer*>& operands,
                 const std::vector<Buffer>& results);

/// A case whose results are added to others, in their place or apart.
class Adding {
 public:
  Adding(const OpCase& c, bool in_place, int shift);
  /// The inputs and what each result is added to.
  std::vector<Buffer*> operands();
  std::vector<Buffer*> results();
  /// Result i, where it is `alone` if nothing is added to it.
  std::vector<double> expected(size_t i, std::vector<double> alone) const;
  /// What a call wrote that it should not have: an operand, an addend that is apart, beside a buffer. "": nothing.
  std::string damage(int shift) const;

 private:
  const OpCase& case_;
  bool in_place_;
  Prepared prepared_;
  std::vector<Buffer> addends_;  // of each result; absent: none
};

}  // namespace quintet::testing
