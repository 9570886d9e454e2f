#pragma once
// What Mesh TensorFlow calls the variables of T5, and we (T5X's paths). Source: google-research/t5x,
// checkpoint_importer.py.
//
//   mesh_to_ours({"decoder/logits/kernel", "decoder/logits/kernel_slot_vr"});

#include <map>
#include <string>
#include <vector>

namespace quintet::tensorflow {

/// Our name of each variable: below "target/", an optimizer's slot below "state/param_states/", the step
/// "state/step". Relative position biases are a stack's if its first block alone has one, else a layer's.
/// Throws ExitCode::kData listing the first names that are not of such a model.
std::map<std::string, std::string> mesh_to_ours(const std::vector<std::string>& names,
                                                const std::string& where);

}  // namespace quintet::tensorflow
