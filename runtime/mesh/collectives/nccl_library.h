#pragma once
// Where NCCL is loaded from. Linked, it would keep programs from starting where it is not installed, and only
// ranks with a GPU each need it.

#include "runtime/base/shared_library.h"

namespace quintet {

inline constexpr SharedLibrary::Description kNccl = {
    .name = "libnccl.so.2",
    .variable = "QUINTET_NCCL",
    .purpose = "ranks with a GPU each talk by NCCL",
    .remedy = "install NCCL 2.18 or newer (libnccl2) on every host, or run one rank"};

}  // namespace quintet
