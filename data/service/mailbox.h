#pragma once
// Messages between the ranks of the data service: sent without waiting, received when they come.
//
//   Mailbox mail;                                  // by all ranks of the job
//   mail.send(rank, Tag::credit, "");
//   while (auto message = mail.poll()) ...          // from one thread

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace quintet::data {

enum class Tag : int { start, credit, batch, waiting, stop, stopped, chunk, chunks_end };

/// Of who polls and finds no message.
inline constexpr auto kPollPause = std::chrono::milliseconds(1);

struct Message {
  int from = 0;
  Tag tag = {};
  std::string bytes;
};

class Mailbox {
 public:
  /// A channel of its own between all ranks of the job; all call it. MPI must run.
  Mailbox();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// Queues a message; from any thread. Messages between two ranks arrive in order.
  void send(int to, Tag tag, std::string bytes);
  /// Moves messages along and gives the next that has arrived, if one has. From one thread.
  std::optional<Message> poll();
  /// Whether all messages that were sent have gone.
  bool empty();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quintet::data
