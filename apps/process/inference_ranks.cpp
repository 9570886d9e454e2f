#include "apps/process/inference_ranks.h"

#include "kernels/device.h"
#include "runtime/base/process/messages.h"
#include "runtime/mesh/device_group.h"

namespace quintet {

InferenceRanks::InferenceRanks(const Ranks& ranks, int64_t model_ranks)
    : ranks_(ranks), size_(static_cast<int>(model_ranks)) {
  QT_CHECK(model_ranks >= 1 && model_ranks <= SharedMemoryGroup::kMostRanks &&
               ranks.size() % model_ranks == 0,
           "num_partitions = {}: it must divide the {} ranks; start as many as are to hold a model "
           "together, times the groups that share the examples",
           model_ranks, ranks.size());
  if (model_ranks == 1) return;
  const int first = ranks.rank() / size_ * size_;
  const std::vector<std::string>& hosts = ranks.session().hosts();
  for (int rank = first; rank < first + size_; ++rank)
    QT_CHECK(
        hosts[static_cast<size_t>(rank)] == hosts[static_cast<size_t>(first)],
        "num_partitions = {}: ranks {} on {} and {} on {} would hold a model together; such ranks "
        "exchange activations through memory: start whole groups on each host",
        model_ranks, first, hosts[static_cast<size_t>(first)], rank,
        hosts[static_cast<size_t>(rank)]);
  const Group devices =
      Device::current().is_cpu() ? Group() : device_group(*ranks.comm(), first, size_);
  std::optional<SharedMemoryGroup::File> file;
  if (ranks.rank() == first) file.emplace();
  const std::vector<std::string> paths = ranks.gather(file ? file->path() : "");
  group_ = std::make_unique<SharedMemoryGroup>(
      paths[static_cast<size_t>(first)], SharedMemoryGroup::Place{ranks.rank() - first, size_},
      SharedMemoryGroup::Options{.timeout_seconds = ranks.flags().collective_timeout,
                                 .end =
                                     [](const std::string& message) {
                                       fmt::print(stderr, "{}{}\n", error_label(), message);
                                       mpi::Session::fail(ExitCode::kPeer);
                                     },
                                 .devices = devices});
  ranks.gather("");  // all have opened it
}

std::vector<std::string> InferenceRanks::gather(const std::string& text) const {
  const bool speaks = group_ == nullptr || group_->leads();
  const std::vector<std::string> all = ranks_.gather(speaks ? text : "");
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < all.size(); rank += static_cast<size_t>(size_))
    texts.push_back(all[rank]);
  return texts;
}

data::Peers InferenceRanks::peers() const {
  return {group_index(), groups(), [this](const std::string& text) { return gather(text); }};
}

void InferenceRanks::check_whole(bool needed, std::string_view what) const {
  QT_CHECK(!needed || group_ == nullptr,
           "{} are computed by ranks that have the whole model; leave num_partitions at 1, so that "
           "ranks share the examples alone",
           what);
}

int64_t model_ranks_of(int64_t num_partitions, const Ranks& ranks) {
  if (ranks.size() > 1 || num_partitions == 1) return num_partitions;
  print_warning(
      "num_partitions = {} has no effect: one rank holds the whole model; start "
      "several with mpirun",
      num_partitions);
  return 1;
}

}  // namespace quintet
