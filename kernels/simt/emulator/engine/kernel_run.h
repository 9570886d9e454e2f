#pragma once
// A launch under way, set of resident blocks by set. Internal to the engine.

#include <cstdint>
#include <vector>

#include "kernels/simt/emulator/engine/resident_blocks.h"

namespace quintet::emulated::simt::emulator {

class KernelRun {
 public:
  KernelRun(const Launch& how, Body body);
  /// Its first set runs until its threads wait for the kernels before this one.
  void begin();
  /// All sets run to their end; the kernels before this one have ended.
  void finish();

 private:
  void run_next_set(bool previous_ended);

  const Shape shape_;
  const Body body_;
  const uint64_t seed_, number_, together_, sets_;  // together: blocks of a set
  uint64_t next_set_ = 0;
  ResidentBlocks resident_blocks_;
};

}  // namespace quintet::emulated::simt::emulator
