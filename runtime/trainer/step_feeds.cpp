#include "runtime/trainer/step_feeds.h"

#include <cstring>

namespace quintet {

void StepFeeds::add(const Tensor& to, int64_t first, ArrayOf make) {
  Feed feed{std::move(make), first, to.bytes(), to.device().pinned(to.bytes())};
  to.device().copy(to.local().pointer, feed.pinned.get(), feed.bytes);
  feeds_.push_back(std::move(feed));
}

void StepFeeds::read(const HostArrays& batch) const {
  for (const Feed& feed : feeds_) {
    const HostArray array = feed.make(batch);
    QT_ASSERT(static_cast<int64_t>(array.bytes.size()) >= feed.first + feed.bytes);
    std::memcpy(feed.pinned.get(), array.bytes.data() + feed.first,
                static_cast<size_t>(feed.bytes));
  }
}

}  // namespace quintet
