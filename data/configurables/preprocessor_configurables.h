#pragma once
// The preprocessors' names in gin files: seqio's and t5's.

#include "runtime/gin/registry/registry.h"

namespace quintet::data {

/// All of them.
void register_preprocessors(gin::Registry& registry);

/// Those that work on text, and those that work on ids.
void register_text_preprocessors(gin::Registry& registry);
void register_token_preprocessors(gin::Registry& registry);

/// A list of names that may be None.
template <typename T, typename Params>
void add_names(Params& params, const char* name, std::vector<std::string> T::*member) {
  params.arg_with(name, nullptr,
                  [member](T& object, const gin::Value& value, const gin::Where& at) {
                    if (!value.is_none())
                      object.*member = gin::as<std::vector<std::string>>(value, at);
                  });
}

}  // namespace quintet::data
