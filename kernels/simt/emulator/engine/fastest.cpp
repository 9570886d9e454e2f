// Nothing is measured in the emulator.

#include "kernels/simt/host/fastest.h"

namespace quintet::emulated::simt {

void run_fastest(Stream, const std::string&, Ways ways) {
  const auto* asked = asked_way(ways);
  asked != nullptr ? (*asked)() : (*ways.begin())();
}

}  // namespace quintet::emulated::simt
