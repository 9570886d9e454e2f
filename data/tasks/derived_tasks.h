#pragma once
// Tasks and mixtures made of others, as seqio.helpers and seqio.experimental make them.
//
//   const Derived small = derive(registry.get("glue_v002_equal"), "small", truncated_data({{"train", 100}}));
//   small.made;   // a mixture of "small.glue_cola_v002" and the others, which are small.parts

#include "data/tasks/task.h"

namespace quintet::data {

using ChangeTask = std::function<void(Task::Config&)>;
using PartName = std::function<std::string(const std::string& part)>;

struct Derived {
  ProviderPtr made;
  std::vector<ProviderPtr> parts;  // of a mixture, those of mixtures in it too
};
/// A copy of a task that `change` has changed, or a mixture of such copies of its parts at their
/// rates. Parts are called `name`.`part` unless `part_name` says otherwise.
Derived derive(const ProviderPtr& original, const std::string& name, const ChangeTask& change,
               const PartName& part_name = {});

/// Arguments of seqio.helpers.mixture_or_task_with_new_vocab.
struct NewVocabulary {
  VocabularyPtr vocabulary;            // of every feature, or
  Features output_features;            // these; just one of the two is given
  bool add_cache_placeholder = false;  // before the first step that uses lengths
  bool validate_features = true;       // new features have the names, types and ranks of the old
};
ChangeTask new_vocabulary(NewVocabulary options);
/// mixture_or_task_with_truncated_data: at most so many examples of a split.
ChangeTask truncated_data(TruncatedDataSource::Sizes split_sizes);
/// mixture_with_missing_task_splits_removed: the parts that have the split, at their rates.
ProviderPtr without_parts_missing(const ProviderPtr& mixture, const std::string& split,
                                  const std::string& name);

/// add_fully_cached_task: preprocessed to its end for these lengths before it is cached, and read
/// from that cache only, for these lengths only.
ChangeTask fully_cached(Lengths lengths, bool disallow_shuffling);
/// "name_i512_t128": features by their shortest beginnings that differ.
std::string fully_cached_name(const std::string& name, const Lengths& lengths);

}  // namespace quintet::data
