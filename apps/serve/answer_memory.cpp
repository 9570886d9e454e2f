#include "apps/serve/answer_memory.h"

#include <algorithm>

#include "apps/serve/answer_text.h"
#include "apps/serve/api/api_error.h"
#include "models/decoding/request.h"

namespace quintet::serve {
namespace {

using decoding::TokenChoice;
using decoding::TokenLogProb;

constexpr int64_t kGrowth = 2;          // a vector or string that grows has so much room at most
constexpr int64_t kBlock = 16;          // of malloc, around each block
constexpr int64_t kNumber = 26;         // of JSON: sign, 17 digits, point, exponent, comma
constexpr int64_t kBeams = 3;           // running, finished, and those that are tried
constexpr int64_t kAnswer = 1024;       // its fields and objects, without tokens
constexpr int64_t kStream = 256 << 10;  // what a client may leave unread of one

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

AnswerMemory::AnswerMemory(int64_t limit, const data::Vocabulary& vocabulary, int64_t ids)
    : limit_(limit) {
  std::string text;
  for (int32_t id = 0; id < ids; ++id) {
    text.clear();
    write_string(text, piece_text(vocabulary, id));
    piece_bytes_ = std::max(piece_bytes_, std::ssize(text) + 2);  // a space before it, a comma
  }
}

int64_t AnswerMemory::bytes(const AnswerSize& size) const {
  const int64_t top = std::max<int64_t>(size.logprobs, 0);
  int64_t noted = kGrowth * static_cast<int64_t>(sizeof(TokenChoice) + sizeof(int32_t));
  if (top > 0) noted += kBlock + top * static_cast<int64_t>(sizeof(TokenLogProb));
  int64_t written = piece_bytes_;
  if (size.logprobs >= 0)
    written +=
        piece_bytes_ + 2 * kNumber + 4 + top * (std::max<int64_t>(piece_bytes_, 24) + kNumber);
  const int64_t gathered = kGrowth * size.tokens * written;
  const int64_t answers = std::min(size.answers, size.rows);
  const int64_t prompt =
      size.rows * ((size.beams ? kBeams : 1) * size.tokens * noted + kAnswer) + answers * gathered;
  // Of one answer the lists are there twice: by themselves, and in the whole.
  return size.prompts * prompt + (answers == 0 ? kStream : gathered);
}

/// The field named is the first that alone can make the request small enough.
void AnswerMemory::check(const AnswerSize& size, const AnswerFields& fields) const {
  const int64_t most = limit_ / 2;
  if (bytes(size) <= most) return;
  const struct {
    std::string name;
    int64_t AnswerSize::*value;
    int64_t least;
  } parts[] = {{"logprobs", &AnswerSize::logprobs, -1},
               {fields.rows, &AnswerSize::rows, 1},
               {fields.prompts, &AnswerSize::prompts, 1},
               {fields.tokens, &AnswerSize::tokens, 1}};
  const std::string why = fmt::format(
      "{} prompts x {} sequences x {} tokens{} may take {:.1f} MiB of answers, and one request may "
      "take {:.1f}, half of --answers_mib",
      size.prompts, size.rows, size.tokens,
      size.logprobs < 0 ? "" : fmt::format(" with logprobs={}", size.logprobs), mib(bytes(size)),
      mib(most));
  for (const auto& part : parts) {
    const auto fits = [&](int64_t value) {
      AnswerSize smaller = size;
      smaller.*part.value = value;
      return bytes(smaller) <= most;
    };
    int64_t good = part.least, bad = size.*part.value;
    if (good >= bad || !fits(good)) continue;
    while (bad - good > 1) (fits((good + bad) / 2) ? good : bad) = (good + bad) / 2;
    throw ApiError(400,
                   fmt::format("{}: {}; {} would do", part.name, why,
                               good < 0 ? "leaving it out" : fmt::format("{}", good)),
                   part.name, "answer_too_large");
  }
  throw ApiError(400, fmt::format("{}: {}; ask for less of each", fields.tokens, why),
                 fields.tokens, "answer_too_large");
}

AnswerMemory::Held AnswerMemory::hold(const AnswerSize& size, const AnswerFields& fields) {
  check(size, fields);
  return hold_bytes(bytes(size));
}

AnswerMemory::Held AnswerMemory::hold_vectors(int64_t count, int64_t width,
                                              const std::string& field) {
  // A number, its text (-1.2345679e-05), which the whole answer repeats, and the room that the text grows into.
  constexpr int64_t kNumberBytes = 4 + 3 * 16;
  const int64_t vector = width * kNumberBytes, most = limit_ / 2;
  if (count > most / vector)
    throw ApiError(400,
                   fmt::format("{}: {} vectors of {} numbers may take {:.1f} MiB, and one request "
                               "may take {:.1f}, half of --answers_mib; {} would do",
                               field, count, width, mib(count * vector), mib(most), most / vector),
                   field, "answer_too_large");
  return hold_bytes(count * vector);
}

AnswerMemory::Held AnswerMemory::hold_bytes(int64_t most) {
  auto mine = std::make_unique<int64_t>(most);
  const int64_t held = held_->fetch_add(*mine) + *mine;
  // From here on the bytes are given back, also if making the pointer fails.
  Held result(mine.release(), [all = held_](const int64_t* bytes) {
    *all -= *bytes;
    delete bytes;
  });
  if (held > limit_)
    throw ApiError(503,
                   fmt::format("other requests' answers may take {:.0f} of the {:.0f} MiB of "
                               "--answers_mib, and this one's {:.0f}; try again when they are done",
                               mib(held - *result), mib(limit_), mib(*result)),
                   "", "answers_full");
  return result;
}

}  // namespace quintet::serve
