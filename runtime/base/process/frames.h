#pragma once
// Messages between two processes of ours over a pipe or a socket: a head, then the body. Both run on one machine, so
// numbers are as it has them.
//
//   write_frame(out, {.request = 7, .status = 200}, {body});
//   while (read_head(in, head)) read_body(in, body.data(), head.bytes);

#include <cstdint>
#include <string_view>
#include <vector>

namespace quintet {

struct FrameHead {
  uint64_t request = 0;  // which one it is about; 0: none
  int32_t status = 0;
  uint32_t mark = 0x31465451;  // "QTF1": the other end speaks this
  uint64_t bytes = 0;          // of the body
};

/// Writes a head and the parts of its body, whole. False: nobody reads any more (no SIGPIPE comes of a socket).
/// Throws kEnvironment.
bool write_frame(int file, FrameHead head, const std::vector<std::string_view>& parts);

/// False at the end of the file. Throws kEnvironment for what is no head of ours or is cut short.
bool read_head(int file, FrameHead& head);
/// Throws kEnvironment if there is less.
void read_body(int file, void* to, size_t bytes);

}  // namespace quintet
