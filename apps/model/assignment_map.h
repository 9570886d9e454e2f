#pragma once
// Which array of a checkpoint becomes which of a model, as t5x.state_utils.apply_assignment_map says it.
//
//   SourceNames names = names_of(checkpoint);                     // each its own source
//   names = apply_assignment_map({.rules = {{R"(target/(.*)/mlp/(.*))", R"(target/\1/dense/\2)"}}}, model, names);
//   names.at("target/decoder/mlp/wi");                            // "target/decoder/dense/wi"

#include <map>
#include <set>
#include <string>

#include "apps/config/checkpoint_config.h"

namespace quintet {

/// Name after all transformations so far -> name in the checkpoint.
using SourceNames = std::map<std::string, std::string>;

/// Names of the model are matched whole, by Python's regular expressions but for look-behind and flags;
/// replacements may name groups (\1, \g<1>, \g<name>). Names that no rule matches keep their source, a source
/// that a rule took is no name of its own any more, names whose rule drops them have none. As in T5X a name that the
/// checkpoint has too, and that no rule reads, is read from itself whatever rule matches it: a warning says so. Throws a usage
/// error that lists replacements that name nothing and, if all must match, rules that match nothing. `dropped_names`, if given,
/// gets the names of the model that rules drop.
SourceNames apply_assignment_map(const AssignmentMap& map, const std::set<std::string>& model,
                                 const SourceNames& names,
                                 std::set<std::string>* dropped_names = nullptr);

}  // namespace quintet
