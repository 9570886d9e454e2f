#pragma once
// Sanitizers do not know the stacks of work that takes turns (runtime/execution/turns.h).

#include <gtest/gtest.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QT_SKIP_SANITIZED() GTEST_SKIP() << "runs on stacks that sanitizers do not know"
#else
#define QT_SKIP_SANITIZED() static_cast<void>(0)
#endif
