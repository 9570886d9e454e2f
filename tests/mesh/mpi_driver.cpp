// A job of ranks for mpi_test.py: mpi_driver MODE [TIMEOUT_SECONDS [RANK]].
//   collectives: all of them against plain loops, bit for bit; prints "bits agree" and the traffic
//   gpu:         the same between GPUs, one a rank; prints "GPUs agree"
//   late:        RANK does not come to what all do at the start
//   else:        steps of all-reduces over a mesh, in which RANK misbehaves at step 5: dies, stops,
//                loops (computes for ever), order (calls another collective), throws

#include <csignal>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>

#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/device/devices.h"
#include "runtime/mesh/collectives/collectives_mpi.h"
#include "runtime/mesh/collectives/collectives_threads.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mpi/session.h"
#include "tests/mesh/collective_cases.h"

namespace quintet {
namespace {

std::vector<float> numbers(int rank, int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>((i * 7919 + static_cast<size_t>(rank) * 104729) % 1000) / 7.0f;
  return x;
}

/// Every collective of a comm, one result after the other.
std::vector<float> all_results(Comm& comm, Comm& other, int64_t count) {
  const Group world = comm.world();
  const int64_t n = comm.size();
  std::vector<float> results;
  const auto keep = [&](const std::vector<float>& x) {
    results.insert(results.end(), x.begin(), x.end());
  };
  auto x = numbers(comm.rank(), count);
  Pending sum = world.all_reduce(x.data(), count, DType::f32);
  auto most = numbers(comm.rank(), count);
  Pending maximum = world.all_reduce(most.data(), count, DType::f32, Reduction::max);
  maximum.wait();
  sum.wait();
  keep(x);
  keep(most);
  const auto blocks = numbers(comm.rank() + 10, n * count);
  std::vector<float> part(static_cast<size_t>(count)), whole(static_cast<size_t>(n * count));
  world.reduce_scatter(blocks.data(), part.data(), count, DType::f32).wait();
  keep(part);
  world.all_gather(part.data(), whole.data(), count, DType::f32).wait();
  keep(whole);
  world.all_to_all(blocks.data(), whole.data(), count, DType::f32).wait();
  keep(whole);
  Slices sends, receives;  // member r has (r + s) % 3 + 1 elements for member s
  for (int i = 0; i < comm.size(); ++i) {
    sends.push_back({i, i * count, std::min<int64_t>((comm.rank() + i) % 3 + 1, count)});
    receives.push_back({i, i * count, sends.back().count});
  }
  std::vector<float> uneven(static_cast<size_t>(n * count));
  world.exchange(blocks.data(), sends, uneven.data(), receives, n * count, DType::f32).wait();
  keep(uneven);
  auto from_last = numbers(comm.rank(), count);
  world.broadcast(from_last.data(), count, DType::f32, comm.size() - 1).wait();
  keep(from_last);
  Pending send;
  if (comm.rank() == 1) send = world.send(x.data(), count, DType::f32, 0);
  other.world().barrier();  // not behind the message
  if (comm.rank() == 0) world.receive(part.data(), count, DType::f32, 1).wait();
  send.wait();
  keep(part);
  for (const std::string& text :
       gather_text(world, std::string(static_cast<size_t>(comm.rank()), 'x')))
    results.push_back(static_cast<float>(text.size()));
  return results;
}

void compare_with_threads(Comm& comm) {
  const auto other = comm.channel();
  for (const int64_t count : {1, 3, 1000, 3'000'000}) {
    if (count * comm.size() > 12'000'000) break;  // every process holds all ranks' arrays
    const auto here = all_results(comm, *other, count);
    const auto want = run_ranks(comm.size(), [&](Comm& c) {
      return all_results(c, *c.channel(), count);
    })[static_cast<size_t>(comm.rank())];
    QT_CHECK_AS(ExitCode::kBug,
                here.size() == want.size() &&
                    std::memcmp(here.data(), want.data(), here.size() * sizeof(float)) == 0,
                "rank {}: MPI and threads differ for {} elements", comm.rank(), count);
  }
  comm.world().barrier();
  if (comm.rank() != 0) return;
  fmt::print("bits agree\n");
  for (const auto& [name, entry] : comm.traffic().table())
    fmt::print("{} {} {} {}\n", name.first, name.second, entry.calls, entry.bytes);
}

void run_cases(Comm& comm) {
  testing::all_cases(comm, {1, 7, 1000, 3'000'000}, testing::Sums::rounded);
  comm.world().barrier();
  if (comm.rank() == 0) fmt::print("GPUs agree\n");
}

void misbehave(const std::string& mode, Comm& comm, const Mesh& mesh) {
  if (mode == "dies") raise(SIGKILL);
  if (mode == "stops") raise(SIGSTOP);
  if (mode == "loops")
    for (;;) ::pause();
  std::vector<float> x(8);
  if (mode == "order") mesh.group({"data"}).all_gather(x.data(), x.data(), 4, DType::f32).wait();
  if (mode == "throws") fail(ExitCode::kData, "rank {}: a broken record", comm.rank());
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  mpi::Session session(mode == "late" ? std::stoi(argv[2]) : 1800);
  try {
    if (mode == "late") {
      while (session.rank() == std::stoi(argv[3])) ::pause();
      session.gather("here");
    }
    Device& device =
        mode == "gpu" ? use_device(fmt::format("cuda:{}", session.local_rank())) : Device::cpu();
    const auto comm =
        open_mpi(session, device, {.timeout_seconds = argc > 2 ? std::stod(argv[2]) : 60});
    if (mode == "collectives" || mode == "gpu") {
      mode == "gpu" ? run_cases(*comm) : compare_with_threads(*comm);
      return 0;
    }
    const Mesh mesh({{"data", comm->size() / 2}, {"model", 2}}, comm.get());
    std::vector<float> x(1000, 1);
    for (int step = 0; step < 200; ++step) {
      comm->set_step(step);
      if (step == 5 && comm->rank() == std::stoi(argv[3])) misbehave(mode, *comm, mesh);
      mesh.group({"data"}).all_reduce(x.data(), 4, DType::f32).wait();
      mesh.group({"model"}).all_reduce(x.data(), 1000, DType::f32).wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // delay: a step's work
    }
  } catch (const Error& error) {
    std::fputs(("error: " + std::string(error.what()) + "\n").c_str(), stderr);
    mpi::Session::fail(error.code());
  }
  return 0;
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) { return quintet::run(argc, argv); }
