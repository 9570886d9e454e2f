#pragma once
// Rates of a mixture that are computed: from the number of examples, as seqio and T5 compute them.
//
//   Mixture("both", {{a, examples_rate({.maximum = 1e5})}, {b, examples_rate({.maximum = 1e5})}});

#include "data/tasks/task.h"
#include "runtime/gin/config.h"

namespace quintet::data {

/// Arguments of seqio.mixing_rate_num_examples.
struct ExamplesRate {
  std::optional<double> maximum = {};
  double scale = 1, temperature = 1;
  std::string split = "train";
};
/// min(scale * examples, maximum) ^ (1 / temperature).
double mixing_rate(double examples, const ExamplesRate& options);
/// The rate by the number of examples that the part's sources hold.
MixtureRate examples_rate(ExamplesRate options = {});

/// Arguments of seqio.mixing_rate_num_characters.
struct CharactersRate {
  double temperature = 1;
  std::string char_count_name = "text_chars";  // in the cache's stats.train.json
};
/// The count in the statistics of the task's cache, ^ (1 / temperature). Throws a usage error if it is
/// not cached in the directories of `stream`, kData if the statistics have no such count.
double characters_rate(const Provider& part, const StreamOptions& stream,
                       const CharactersRate& options);

/// The rate that a function known to gin gives, called with `task` and what gin binds to it.
MixtureRate configured_rate(const std::string& name, const gin::Config& config);
/// A number, or a reference to such a function.
MixtureRate rate_from(const gin::Value& value, const gin::Where& where);

/// seqio.mixing_rate_num_examples and mixing_rate_num_characters, t5.data.rate_num_examples and t5.data.rate_unsupervised.
void register_mixing_rates(gin::Registry& registry);

}  // namespace quintet::data
