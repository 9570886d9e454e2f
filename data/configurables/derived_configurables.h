#pragma once
// seqio.helpers and seqio.experimental: tasks and mixtures made of registered ones.

#include <functional>

#include "data/tasks/task.h"
#include "runtime/gin/registry/registry.h"

namespace quintet::data {

/// What such a function is in seqio.TaskRegistry.tasks or seqio.MixtureRegistry.mixtures: it adds
/// what it makes of those that are registered before it.
using AddProviders = std::function<void(TaskRegistry&)>;
void register_derived_tasks(gin::Registry& registry);

}  // namespace quintet::data
