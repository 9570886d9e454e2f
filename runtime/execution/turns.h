#pragma once
// Pieces of work that take turns on one thread: where one waits for other ranks, the next goes on.
//
//   run_in_turns({[&] { first(); }, [&] { second(); }});
//   ...
//   take_turn();   // in either, with a collective under way that it is about to wait for

#include <functional>
#include <span>

namespace quintet {

/// Runs them to their end, each on a stack of its own in the caller's ExecutionContext with its index as
/// `turn`. All ranks that do the same get the same order. Rethrows the first error; the others are
/// unwound then.
void run_in_turns(std::span<const std::function<void()>> works);
/// Lets the others go on first. Outside of run_in_turns: nothing.
void take_turn();

}  // namespace quintet
