// A process that is started has its files, its own session, and no signal blocked or ignored.

#include "runtime/base/process/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>

namespace quintet {
namespace {

/// What a shell's command writes; `input`: it reads.
std::string answer(const std::string& command, const std::string& input) {
  int in[2], out[2];
  EXPECT_EQ(pipe2(in, O_CLOEXEC) + pipe2(out, O_CLOEXEC), 0);
  const pid_t process = spawn({"sh", "-c", command}, {in[0], out[1], out[1]});
  EXPECT_GT(process, 0);
  for (const int theirs : {in[0], out[1]}) close(theirs);
  EXPECT_EQ(write(in[1], input.data(), input.size()), std::ssize(input));
  close(in[1]);
  std::string text(4096, '\0');
  size_t size = 0;
  for (ssize_t n; (n = read(out[0], text.data() + size, text.size() - size)) > 0;)
    size += static_cast<size_t>(n);
  close(out[0]);
  EXPECT_EQ(waitpid(process, nullptr, 0), process);
  return text.substr(0, size);
}

TEST(Spawn, FilesAndErrorsArrive) {
  EXPECT_EQ(answer("cat; echo error >&2", "input\n"), "input\nerror\n");
  EXPECT_EQ(spawn({"no_such_program_anywhere"}, {0, 1, 2}), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(Spawn, SessionAndSignalsAreItsOwn) {
  std::thread([] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    const auto former = signal(SIGHUP, SIG_IGN);
    EXPECT_EQ(answer("grep SigBlk /proc/self/status", ""), "SigBlk:\t0000000000000000\n");
    const std::string ignored = answer("grep SigIgn /proc/self/status | cut -f2", "");
    EXPECT_EQ(std::stoull(ignored, nullptr, 16) & (1 << (SIGHUP - 1)), 0) << ignored;
    EXPECT_EQ(answer("read -r p c s parent group session rest < /proc/$$/stat; test $session = $$ "
                     "&& echo own",
                     ""),
              "own\n");
    signal(SIGHUP, former);
  }).join();
}

}  // namespace
}  // namespace quintet
