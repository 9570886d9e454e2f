#pragma once
// Writes a bundle (checkpoint/bundle/bundle.h).
//
//   copy_checkpoint(*from, bundle::format(), {.folder = file, .tensors = tensors, .config_text = text}, alone);

#include "checkpoint/write/formats.h"

namespace quintet::bundle {

/// WriteRequest::folder is the file, which must not be there; its config, name and vocabularies are written. One host alone
/// writes.
const WriteFormat& format();

}  // namespace quintet::bundle
