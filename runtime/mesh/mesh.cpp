#include "runtime/mesh/mesh.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "runtime/base/check.h"

namespace quintet {
namespace {

/// Ranks 0 .. count-1, those of a host one after another, hosts in order of their first rank.
std::vector<int> by_host(const std::vector<std::string>& hosts, int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::unordered_map<std::string_view, int> first;  // rank of a host
  std::vector<int> first_of_host;                   // of a rank's
  for (const int rank : ranks)
    first_of_host.push_back(
        first.try_emplace(hosts[static_cast<size_t>(rank)], rank).first->second);
  std::ranges::stable_sort(ranks, {},
                           [&](int rank) { return first_of_host[static_cast<size_t>(rank)]; });
  return ranks;
}

}  // namespace

Mesh::Mesh(std::vector<MeshAxis> axes, Comm* comm) : axes_(std::move(axes)), comm_(comm) {
  int count = 1;
  for (const MeshAxis& axis : axes_) {
    QT_CHECK(axis.size >= 1, "mesh axis '{}' must have at least 1 rank, found {}", axis.name,
             axis.size);
    count *= axis.size;
  }
  const int there = comm == nullptr ? 1 : comm->size();
  QT_CHECK(count <= there, "a mesh of {} needs {} ranks, there are {}: start more (mpirun -n {})",
           to_string(*this), count, there, count);
  if (comm == nullptr) return;
  ranks_ = by_host(comm->hosts(), count);
  const auto self = std::find(ranks_.begin(), ranks_.end(), comm->rank());
  QT_ASSERT(self != ranks_.end());
  self_ = static_cast<int>(self - ranks_.begin());
}

int Mesh::size(const std::string& axis) const {
  for (const MeshAxis& a : axes_)
    if (a.name == axis) return a.size;
  return 1;
}

int Mesh::stride(const std::string& axis) const {
  int stride = 1;
  for (auto a = axes_.rbegin(); a != axes_.rend() && a->name != axis; ++a) stride *= a->size;
  return stride;
}

int Mesh::coordinate(const std::string& axis, int position) const {
  return position / stride(axis) % size(axis);
}

const Group& Mesh::group(const std::vector<std::string>& axes) const {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(axes);
  if (found != groups_.end()) return found->second;
  int corner = self_, count = 1;
  std::string name;
  for (const std::string& axis : axes) {
    corner -= coordinate(axis) * stride(axis);
    count *= size(axis);
    name += (name.empty() ? "" : ",") + axis;
  }
  std::vector<int> members;
  for (int i = 0; i < count; ++i) {
    int position = corner, rest = i;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      position += rest % size(*axis) * stride(*axis);
      rest /= size(*axis);
    }
    members.push_back(comm_rank(position));
  }
  return groups_.emplace(axes, Group(comm_, std::move(members), name)).first->second;
}

const Group& Mesh::replicas(const std::vector<std::string>& axes) const {
  std::vector<std::string> others;
  for (const MeshAxis& axis : axes_)
    if (std::find(axes.begin(), axes.end(), axis.name) == axes.end()) others.push_back(axis.name);
  return group(others);
}

std::vector<std::string> Mesh::axes_between_hosts() const {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : axes_)
    for (int position = 0; comm_ != nullptr && position < size(); ++position) {
      const int first = position - coordinate(axis.name, position) * stride(axis.name);
      const auto host_of = [&](int place) -> const std::string& {
        return comm_->hosts()[static_cast<size_t>(comm_rank(place))];
      };
      if (host_of(position) == host_of(first)) continue;
      axes.push_back(axis.name);
      break;
    }
  return axes;
}

const Group& Mesh::world() const { return replicas({}); }

std::string to_string(const Mesh& mesh) {
  std::string text;
  for (const MeshAxis& axis : mesh.axes())
    text += fmt::format("{}{}={}", text.empty() ? "" : " x ", axis.name, axis.size);
  return text.empty() ? "one rank" : text;
}

}  // namespace quintet
