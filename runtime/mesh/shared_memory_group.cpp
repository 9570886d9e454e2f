#include "runtime/mesh/shared_memory_group.h"

#include <fcntl.h>
#include <hwy/cache_control.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <new>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"

namespace quintet {
namespace {

constexpr int64_t kPage = 4096;
constexpr int kSpins = 1000;  // about 40 us: phases are short and even; then others get the core

constexpr int64_t whole_pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// Until the word is no longer `seen`, it is woken, or 0.1 s are over. Of several processes.
void sleep_on(std::atomic<uint32_t>& word, uint32_t seen) {
  const timespec most{.tv_sec = 0, .tv_nsec = 100'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &most, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::byte* map(int descriptor, int64_t offset, int64_t bytes) {
  QT_CHECK_AS(ExitCode::kEnvironment, ftruncate(descriptor, offset + bytes) == 0,
              "tensor parallel: cannot get {} MB of shared memory: {}", bytes >> 20,
              std::strerror(errno));
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                      descriptor, offset);
  QT_CHECK_AS(ExitCode::kEnvironment, memory != MAP_FAILED,
              "tensor parallel: cannot map {} MB of shared memory: {}", bytes >> 20,
              std::strerror(errno));
  return static_cast<std::byte*>(memory);
}

}  // namespace

SharedMemoryGroup::File::File() : descriptor_(memfd_create("quintet", MFD_CLOEXEC)) {
  QT_CHECK_AS(ExitCode::kEnvironment, descriptor_ >= 0,
              "tensor parallel: cannot make shared memory: {}", std::strerror(errno));
  // Zeros are what ranks find that have not waited yet.
  QT_CHECK_AS(ExitCode::kEnvironment, ftruncate(descriptor_, whole_pages(sizeof(Shared))) == 0,
              "tensor parallel: cannot make shared memory: {}", std::strerror(errno));
}
SharedMemoryGroup::File::~File() { close(descriptor_); }

std::string SharedMemoryGroup::File::path() const {
  return fmt::format("/proc/{}/fd/{}", getpid(), descriptor_);
}

SharedMemoryGroup::SharedMemoryGroup(const std::string& path, Place place, Options options)
    : place_(place),
      options_(std::move(options)),
      descriptor_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
  QT_ASSERT(place.size <= kMostRanks);
  QT_CHECK_AS(ExitCode::kEnvironment, descriptor_ >= 0,
              "tensor parallel: {}: {}; ranks that hold a model together must see each other's "
              "processes: start them on one host, in one container",
              path, std::strerror(errno));
  void* memory = mmap(nullptr, static_cast<size_t>(whole_pages(sizeof(Shared))),
                      PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  QT_CHECK_AS(ExitCode::kEnvironment, memory != MAP_FAILED,
              "tensor parallel: cannot map shared memory: {}", std::strerror(errno));
  shared_ = std::launder(reinterpret_cast<Shared*>(memory));
}

SharedMemoryGroup::~SharedMemoryGroup() {
  if (memory_ != nullptr) munmap(memory_, static_cast<size_t>(bytes_));
  munmap(shared_, static_cast<size_t>(whole_pages(sizeof(Shared))));
  close(descriptor_);
}

void SharedMemoryGroup::wait() { wait(options_.timeout_seconds); }

void SharedMemoryGroup::wait(double timeout_seconds) {
  std::atomic<uint32_t>& own = shared_->lines[place_.rank].arrived;
  own.store(++round_, std::memory_order_seq_cst);
  if (shared_->sleepers.load(std::memory_order_seq_cst) > 0) wake_all(own);
  for (int rank = 0; rank < place_.size; ++rank)
    if (rank != place_.rank) wait_for(rank, timeout_seconds);
}

void SharedMemoryGroup::wait_for(int rank, double timeout_seconds) {
  std::atomic<uint32_t>& theirs = shared_->lines[rank].arrived;
  const auto came = [&](uint32_t round) { return static_cast<int32_t>(round - round_) >= 0; };
  for (int i = 0; i < kSpins; ++i) {
    if (came(theirs.load(std::memory_order_acquire))) return;
    hwy::Pause();
  }
  const double since = now_seconds();
  shared_->sleepers.fetch_add(1, std::memory_order_seq_cst);
  // Whoever comes after this load sees the sleeper and wakes it.
  for (uint32_t seen = theirs.load(std::memory_order_seq_cst); !came(seen);
       seen = theirs.load(std::memory_order_seq_cst)) {
    sleep_on(theirs, seen);
    const double waited = now_seconds() - since;
    if (timeout_seconds > 0 && waited > timeout_seconds)
      options_.end(
          fmt::format("tensor parallel: rank {} of the group has waited {:.1f} s for rank "
                      "{}, which does not come: stopped, or busy with something else "
                      "(--collective_timeout is {:.0f} s)",
                      place_.rank, waited, rank, timeout_seconds));
  }
  shared_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

std::byte* SharedMemoryGroup::mapped(int64_t bytes) {
  const int64_t wanted = whole_pages(bytes);
  if (wanted <= bytes_) return memory_;
  if (memory_ != nullptr) munmap(memory_, static_cast<size_t>(bytes_));
  memory_ = nullptr;
  memory_ = map(descriptor_, whole_pages(sizeof(Shared)), wanted);
  bytes_ = wanted;
  return memory_;
}

float* SharedMemoryGroup::floats(int64_t count) {
  return reinterpret_cast<float*>(mapped(count * static_cast<int64_t>(sizeof(float))));
}

std::string SharedMemoryGroup::of_leader(const std::string& text) {
  constexpr double kForever = 0;
  if (leads()) {
    shared_->text_bytes = std::ssize(text);
    std::memcpy(mapped(std::ssize(text) + 1), text.data(), text.size());
  }
  wait(leads() ? options_.timeout_seconds : kForever);
  const auto* begin = reinterpret_cast<const char*>(mapped(shared_->text_bytes + 1));
  std::string given(begin, static_cast<size_t>(shared_->text_bytes));
  wait();
  return given;
}

}  // namespace quintet
