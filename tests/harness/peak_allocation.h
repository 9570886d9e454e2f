#pragma once
// The most memory that a piece of work has from operator new at a time, beyond what there was before.
//
//   const testing::PeakAllocation peak;
//   open_checkpoint(damaged);
//   EXPECT_LT(peak.bytes(), 1'000'000);
//
// For programs whose sources include peak_allocation.cpp, which replaces operator new; one at a time. What C libraries take by
// malloc (the windows of zlib and zstd) and mapped files are not counted.

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
