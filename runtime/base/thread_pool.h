#pragma once
// Threads that do what they are given, each task by one of them, in the order in which tasks came.
//
//   ThreadPool pool("to preprocess", 4);
//   std::future<int> answer = pool.submit([] { return 42; });
//   pool.for_each(1000, [&](int64_t i) { work(i); });          // the caller works, too
//
// With one thread it is a queue: tasks run one after another.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace quintet {

class ThreadPool {
 public:
  using Tasks = std::list<std::function<void()>>;
  /// What becomes at the end of tasks that have not been begun.
  enum class AtEnd { run, drop };
  struct Options {
    AtEnd at_end = AtEnd::run;
    /// Told what a posted task throws; without it such a task ends the process.
    std::function<void(const std::exception&)> failed = {};
  };

  /// Throws kEnvironment, naming the purpose, where the system gives no thread.
  ThreadPool(std::string_view purpose, int threads, Options options);
  ThreadPool(std::string_view purpose, int threads) : ThreadPool(purpose, threads, Options{}) {}
  /// Waits for the tasks that run, and for the others unless they are dropped.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int64_t size() const { return static_cast<int64_t>(threads_.size()); }

  void post(std::function<void()> task);
  /// Of tasks made before they are needed, so that memory is not.
  void post(Tasks&& tasks) noexcept;

  /// What `work` returns or throws; of a task that is dropped, std::future_error.
  template <class Work>
  auto submit(Work work) {
    using Result = std::invoke_result_t<Work>;
    const auto task = std::make_shared<std::packaged_task<Result()>>(std::move(work));
    std::future<Result> result = task->get_future();
    post([task] { (*task)(); });
    return result;
  }

  /// work(i) for each i < count, by the caller and all threads, and waits for it. Throws what the
  /// first to fail threw; what has not been begun then is left.
  void for_each(int64_t count, const std::function<void(int64_t)>& work);

 private:
  void run();
  void stop();

  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Tasks tasks_;         // guarded by mutex_
  bool ended_ = false;  // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace quintet
