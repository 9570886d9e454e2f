#include "checkpoint/checkpoint_writer.h"

#include <exception>

#include "runtime/base/check.h"

namespace quintet {

void HostGroup::tell(int, const std::string&) {
  throw Bug("checkpoint: a host alone tells nobody");
}
std::string HostGroup::hear(int) { throw Bug("checkpoint: a host alone hears nobody"); }

void stage(HostGroup& hosts, const std::function<void()>& work) {
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  const bool all = hosts.all_ok(!failure);
  if (failure) std::rethrow_exception(failure);
  QT_CHECK_AS(ExitCode::kDisk, all, "checkpoint: another host could not save its part");
}

}  // namespace quintet
