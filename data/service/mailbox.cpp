#include "data/service/mailbox.h"

#include "runtime/base/check.h"
#include "runtime/mpi/call.h"

namespace quintet::data {
namespace {

struct Transfer {
  int rank = 0;  // to or from
  Tag tag = {};
  std::string bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

bool done(Transfer& transfer) {
  int flag = 0;
  QT_MPI(MPI_Test(&transfer.request, &flag, MPI_STATUS_IGNORE));
  return flag != 0;
}

int count_of(const std::string& bytes) {
  constexpr size_t kMost = size_t{1} << 30;
  QT_CHECK(bytes.size() <= kMost, "data service: a message of {} bytes; make batches smaller",
           bytes.size());
  return static_cast<int>(bytes.size());
}

}  // namespace

struct Mailbox::State {
  MPI_Comm comm = MPI_COMM_NULL;
  std::mutex mutex;
  std::deque<std::unique_ptr<Transfer>> waiting;  // guarded by mutex
  std::deque<std::unique_ptr<Transfer>> leaving;  // in MPI's hands
  std::deque<std::unique_ptr<Transfer>> arriving;

  void move_out() {
    std::deque<std::unique_ptr<Transfer>> queued;
    {
      const std::lock_guard lock(mutex);
      queued.swap(waiting);
    }
    for (auto& transfer : queued) {
      QT_MPI(MPI_Isend(transfer->bytes.data(), count_of(transfer->bytes), MPI_BYTE, transfer->rank,
                       static_cast<int>(transfer->tag), comm, &transfer->request));
      leaving.push_back(std::move(transfer));
    }
    std::erase_if(leaving, [](auto& transfer) { return done(*transfer); });
  }

  void move_in() {
    while (true) {
      int found = 0;
      MPI_Message message;
      MPI_Status status;
      QT_MPI(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, &message, &status));
      if (found == 0) return;
      int bytes = 0;
      QT_MPI(MPI_Get_count(&status, MPI_BYTE, &bytes));
      auto transfer = std::make_unique<Transfer>();
      transfer->rank = status.MPI_SOURCE;
      transfer->tag = static_cast<Tag>(status.MPI_TAG);
      transfer->bytes.resize(static_cast<size_t>(bytes));
      QT_MPI(MPI_Imrecv(transfer->bytes.data(), bytes, MPI_BYTE, &message, &transfer->request));
      arriving.push_back(std::move(transfer));
    }
  }
};

Mailbox::Mailbox() : state_(std::make_unique<State>()) {
  QT_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &state_->comm));
  QT_MPI(MPI_Comm_set_errhandler(state_->comm, MPI_ERRORS_RETURN));
}

Mailbox::~Mailbox() = default;  // freeing the channel would wait for the other ranks

void Mailbox::send(int to, Tag tag, std::string bytes) {
  auto transfer = std::make_unique<Transfer>();
  transfer->rank = to;
  transfer->tag = tag;
  transfer->bytes = std::move(bytes);
  const std::lock_guard lock(state_->mutex);
  state_->waiting.push_back(std::move(transfer));
}

std::optional<Message> Mailbox::poll() {
  state_->move_out();
  state_->move_in();
  if (state_->arriving.empty() || !done(*state_->arriving.front())) return std::nullopt;
  Transfer& first = *state_->arriving.front();
  Message message{first.rank, first.tag, std::move(first.bytes)};
  state_->arriving.pop_front();
  return message;
}

bool Mailbox::empty() {
  state_->move_out();
  const std::lock_guard lock(state_->mutex);
  return state_->waiting.empty() && state_->leaving.empty();
}

}  // namespace quintet::data
