// Nothing is measured in the emulator.

#include "kernels/simt/host/variants.h"

namespace quintet::emulated::simt {

void run_fastest_variant(Stream, const std::string&, Variants variants) {
  const auto* forced = forced_variant(variants);
  forced != nullptr ? (*forced)() : (*variants.begin())();
}

}  // namespace quintet::emulated::simt
