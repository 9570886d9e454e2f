#include "kernels/simt/emulator/async_copy.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/simt/emulator/engine/parts.h"
#include "kernels/simt/emulator/engine/resident_blocks.h"
#include "kernels/simt/emulator/engine/state.h"

namespace quintet::emulated::simt::emulator {

namespace {

void perform(const Copy& copy) {
  if (copy.valid) {
    std::memcpy(copy.dst, copy.src, copy.bytes);
  } else {
    std::memset(copy.dst, 0, copy.bytes);
  }
}

Copies& copies() {
  if (!self->copies) self->copies = std::make_unique<Copies>();
  return *self->copies;
}

}  // namespace

void cp_async(void* dst, const void* src, size_t bytes, bool valid) {
  block_of(dst, bytes, "cp.async");
  if (reinterpret_cast<uintptr_t>(dst) % bytes ||
      (valid && reinterpret_cast<uintptr_t>(src) % bytes)) {
    fail_here(fmt::format("cp.async: an address is not a multiple of {}", bytes));
  }
  const Copy copy{dst, src, bytes, valid};
  if (resident_blocks().early()) {
    perform(copy);
  } else {
    copies().open.push_back(copy);
  }
}

void cp_async_commit() {
  Copies& c = copies();
  c.groups.push_back(std::move(c.open));
  c.open.clear();
}

void cp_async_wait(int groups) {
  Copies& c = copies();
  while (c.groups.size() > static_cast<size_t>(groups)) {
    for (const Copy& copy : c.groups.front()) perform(copy);
    c.groups.pop_front();
  }
}

void finish_copies(Thread& thread) {
  if (!thread.copies) return;
  for (const auto& group : thread.copies->groups) {
    for (const Copy& copy : group) perform(copy);
  }
  for (const Copy& copy : thread.copies->open) perform(copy);
  thread.copies->groups.clear();
  thread.copies->open.clear();
}

}  // namespace quintet::emulated::simt::emulator
