#pragma once
// The user's folder for files that only save time: they may be deleted at any moment.

#include <filesystem>

namespace quintet {

/// $XDG_CACHE_HOME/quintet, else ~/.cache/quintet; empty without either. It may not exist yet.
std::filesystem::path cache_folder();

}  // namespace quintet
