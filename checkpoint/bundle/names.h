#pragma once
// What a bundle's header and arrays are called.

#include <string_view>

namespace quintet::bundle {

inline constexpr const char* kVersionKey =
    "bundle";  // sorts before all others, so that it comes first
inline constexpr const char* kVersion = "quintet 1";
inline constexpr const char* kConfigKey = "config.gin";
inline constexpr const char* kStateKey = "state";
inline constexpr const char* kStepKey = "step";
inline constexpr const char* kNameKey = "name";
inline constexpr std::string_view kVocabularyPrefix = "vocabularies/";
/// Of the header of any version.
inline constexpr std::string_view kBeginning = "{\"__metadata__\":{\"bundle\":\"quintet ";

}  // namespace quintet::bundle
