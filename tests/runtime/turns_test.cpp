// Work that takes turns: its order, errors, and the context of each.

#include "runtime/execution/turns.h"

#include <gtest/gtest.h>

#include <array>

#include "runtime/base/check.h"
#include "runtime/execution/tape.h"
#include "tests/harness/stacks.h"

namespace quintet {
namespace {

using Works = std::array<std::function<void()>, 2>;

TEST(Turns, GoOnWhereTheOthersLeave) {
  QT_SKIP_SANITIZED();
  std::string seen;
  const auto work = [&](char name, int times) {
    return [&seen, name, times] {
      for (int i = 0; i < times; ++i) {
        seen += name;
        take_turn();
      }
    };
  };
  run_in_turns(Works{work('a', 4), work('b', 2)});
  EXPECT_EQ(seen, "ababaa");
  take_turn();  // nobody else is there
}

TEST(Turns, HaveAContextEach) {
  QT_SKIP_SANITIZED();
  Tape first, second;
  const ExecutionContext* const outside = &ExecutionContext::current();
  const auto work = [](Tape& tape, size_t turn) {
    return [&tape, turn] {
      const Tape::Recording recording(tape);
      take_turn();
      EXPECT_EQ(ExecutionContext::current().tape, &tape);
      EXPECT_EQ(ExecutionContext::current().turn, turn);
    };
  };
  run_in_turns(Works{work(first, 0), work(second, 1)});
  EXPECT_EQ(&ExecutionContext::current(), outside);
}

TEST(Turns, EndWithTheFirstErrorAndUnwindTheOthers) {
  QT_SKIP_SANITIZED();
  struct Watch {
    bool& gone;
    ~Watch() { gone = true; }
  };
  bool gone = false, went_on = false;
  const ExecutionContext* const outside = &ExecutionContext::current();
  EXPECT_THROW(run_in_turns(Works{[&] {
                                    const Watch watch{gone};
                                    take_turn();
                                    take_turn();
                                    went_on = true;
                                  },
                                  [] { fail(ExitCode::kData, "bad"); }}),
               Error);
  EXPECT_TRUE(gone);
  EXPECT_FALSE(went_on);
  EXPECT_EQ(&ExecutionContext::current(), outside);
}

}  // namespace
}  // namespace quintet
