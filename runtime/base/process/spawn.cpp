#include "runtime/base/process/spawn.h"

#include <spawn.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace quintet {

pid_t spawn(const std::vector<std::string>& command, const std::array<int, 3>& files) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int file = 0; file < 3; ++file)
    posix_spawn_file_actions_adddup2(&actions, files[static_cast<size_t>(file)], file);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  pid_t process = -1;
  errno = posix_spawnp(&process, words[0], &actions, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return errno == 0 ? process : -1;
}

}  // namespace quintet
