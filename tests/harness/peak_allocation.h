#pragma once
// The most memory that a piece of work has from malloc at a time, beyond what there was before.
//
//   const testing::PeakAllocation peak;
//   open_checkpoint(damaged);
//   EXPECT_LT(peak.bytes(), 1'000'000);
//
// For programs whose sources include peak_allocation.cpp, which replaces malloc and so counts what C++ and C libraries take
// (the windows of zlib and zstd too); one at a time. Mapped files are not counted.

#include <cstdint>

namespace quintet::testing {

class PeakAllocation {
 public:
  PeakAllocation();
  int64_t bytes() const;

 private:
  int64_t before_;
};

}  // namespace quintet::testing
