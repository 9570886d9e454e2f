#include "data/configurables/configurables.h"

#include "data/configurables/derived_configurables.h"
#include "data/configurables/metric_configurables.h"
#include "data/configurables/preprocessor_configurables.h"
#include "data/configurables/source_configurables.h"

namespace quintet::data {

void register_data(gin::Registry& registry, bool allow_commands) {
  register_vocabularies(registry);
  register_sources(registry);
  register_preprocessors(registry);
  register_metrics(registry);
  register_feature_converters(registry);
  register_tasks(registry);
  register_derived_tasks(registry);
  register_workers(registry, allow_commands);
}

}  // namespace quintet::data
