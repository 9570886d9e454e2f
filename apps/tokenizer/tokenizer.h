#pragma once
// The parts of `quintet tokenizer`: each reads its flags from `args`, prints on stdout and returns an
// exit code.

#include <span>

namespace quintet {

int run_tokenizer_train(std::span<char* const> args);
int run_tokenizer_encode(std::span<char* const> args);
int run_tokenizer_decode(std::span<char* const> args);

}  // namespace quintet
