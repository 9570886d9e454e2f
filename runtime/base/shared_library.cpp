#include "runtime/base/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "runtime/base/check.h"

namespace quintet {
namespace {

std::vector<std::string> places_of(const SharedLibrary::Description& library) {
  if (const char* path = std::getenv(library.variable); path != nullptr && *path != '\0')
    return {path};
  std::vector<std::string> places = {library.name};
  if (const char* home = std::getenv("CUDA_HOME"))
    places.push_back(fmt::format("{}/lib64/{}", home, library.name));
  places.push_back(fmt::format("/usr/local/cuda/lib64/{}", library.name));
  return places;
}

}  // namespace

SharedLibrary::SharedLibrary(const Description& description) : description_(description) {
  std::string tried;
  for (const std::string& place : places_of(description_)) {
    handle_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      path_ = place;
      return;
    }
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", dlerror());
  }
  fail(ExitCode::kEnvironment,
       "{}, and {} cannot be loaded ({}); {}, or set {} to the path of the library",
       description_.purpose, description_.name, tried, description_.remedy, description_.variable);
}

void* SharedLibrary::look_up(const char* name) const { return dlsym(handle_, name); }

void* SharedLibrary::find(const char* name) const {
  void* function = look_up(name);
  QT_CHECK_AS(
      ExitCode::kEnvironment, function != nullptr,
      "{}, and {} has no function {}: it is not {} or too old; {}, or set {} to the path of "
      "the library",
      description_.purpose, path_, name, description_.name, description_.remedy,
      description_.variable);
  return function;
}

}  // namespace quintet
