// Nothing is measured in the emulator.

#include "kernels/simt/fastest.h"

namespace quintet::emulated::simt {

void run_fastest(Stream, const std::string&, std::initializer_list<std::function<void()>> ways) {
  (*ways.begin())();
}

}  // namespace quintet::emulated::simt
