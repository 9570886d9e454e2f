#include "data/configurables.h"

#include "data/metrics/configurables.h"
#include "data/preprocessors/configurables.h"
#include "data/sources/configurables.h"

namespace quintet::data {

void register_data(gin::Registry& registry) {
  register_vocabularies(registry);
  register_sources(registry);
  register_preprocessors(registry);
  register_metrics(registry);
  register_feature_converters(registry);
  register_tasks(registry);
}

}  // namespace quintet::data
