#include "runtime/base/execution_context.h"

namespace quintet {

ContextScope::ContextScope(const ExecutionContext& context)
    : context_(context), previous_(internal::current_context) {
  internal::current_context = &context_;
}

ContextScope::~ContextScope() { internal::current_context = previous_; }

}  // namespace quintet
