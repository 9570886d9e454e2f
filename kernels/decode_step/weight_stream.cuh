#pragma once
// A block's share of all weights of a step, in the order in which it multiplies with them. A thread copies
// to shared memory what it alone reads later, so nobody waits for others: the ring is registers that are
// filled from afar. What comes next is asked for as soon as something was read, whatever barriers stand between.

#include "kernels/decode_step/step_plan.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {

struct StepArguments {
  StepPlan plan;
  DecodeStep step;
};

/// Where in the sequence of products a block is.
struct StepCursor {
  enum Kind { kQkv, kOut, kQuery, kCrossOut, kIn, kMlpOut, kLogits, kEnd };
  int layer, head;  // of logits: which of the block's parts
  Kind kind;

  __device__ bool is_normed() const { return kind == kQkv || kind == kQuery || kind == kIn; }
  __device__ int phase() const { return kind >> 1; }  // of a layer; 3: behind them
};

/// The block's share.
template <typename T>
struct BlockShare {
  static constexpr int kLane = kLanes<T>;
  using Width = StepPiece::Width;
  const StepArguments& a;
  const int rank, cluster;
  const Width qkv, query, output, in;  // of the pieces

  __device__ explicit BlockShare(const StepArguments& arguments)
      : a(arguments),
        rank(static_cast<int>(blockIdx.x) % arguments.plan.cluster),
        cluster(static_cast<int>(blockIdx.x) / arguments.plan.cluster),
        qkv(3 * a.step.head_dim / kLane),
        query(a.step.head_dim / kLane),
        output(a.plan.slice / kLane),
        in((a.step.layer[0].wi_1 == nullptr ? 1 : 2) * hidden() / kLane) {}
  __device__ int first() const { return rank * a.plan.slice; }  // of x
  __device__ int hidden() const {
    const int left = a.step.mlp_dim - cluster * a.plan.hidden;
    return left < a.plan.hidden ? left : a.plan.hidden;
  }
  __device__ bool has_heads() const { return cluster < a.step.heads; }

  /// Columns of a head of an input's projections, in all of which this block's x has a part.
  __device__ StepPiece projection(const void* matrix, int head, Width width) const {
    const int64_t joined = int64_t{a.step.heads} * a.step.head_dim;
    const int64_t pitch = width.groups == query.groups ? joined : 3 * joined;
    return {static_cast<const T*>(matrix) + first() * pitch + head * a.step.head_dim,
            pitch,
            joined,
            width,
            query.groups,
            a.plan.slice};
  }
  /// Rows [begin, begin + rows) of a matrix, the columns of this block's x.
  __device__ StepPiece onto_x(const void* matrix, int64_t begin, int rows) const {
    return {static_cast<const T*>(matrix) + begin * a.step.embed + first(),
            a.step.embed,
            0,
            output,
            output.groups,
            rows};
  }
  /// Groups of logits that a block has, this one maybe fewer or none, and parts that they are done in.
  __device__ int logit_groups() const {
    const int all = a.step.vocab / kLane, blocks = a.plan.clusters * a.plan.cluster;
    const int each = (all + blocks - 1) / blocks, left = all - static_cast<int>(blockIdx.x) * each;
    return left < each ? left : each;
  }
  __device__ int first_logit() const {
    const int all = a.step.vocab / kLane, blocks = a.plan.clusters * a.plan.cluster;
    return static_cast<int>(blockIdx.x) * ((all + blocks - 1) / blocks) * kLane;
  }
  __device__ int logit_parts() const {
    if (a.step.logits_weights == nullptr || logit_groups() <= 0) return 0;
    return (logit_groups() + kMostLogitGroups - 1) / kMostLogitGroups;
  }
  __device__ StepPiece logits(int part) const {
    const int first = part * kMostLogitGroups, left = logit_groups() - first;
    const int groups = left < kMostLogitGroups ? left : kMostLogitGroups;
    return {static_cast<const T*>(a.step.logits_weights) + first_logit() + first * kLane,
            a.step.vocab,
            0,
            Width(groups),
            groups,
            a.step.embed};
  }
  __device__ StepPiece piece(const StepCursor& at) const {
    if (at.kind == StepCursor::kLogits) return logits(at.head);
    const DecodeStepLayer& layer = a.step.layer[at.layer];
    const int d = a.step.head_dim;
    switch (at.kind) {
      case StepCursor::kQkv:
        return projection(layer.qkv, at.head, qkv);
      case StepCursor::kOut:
        return onto_x(layer.out, int64_t{at.head} * d, d);
      case StepCursor::kQuery:
        return projection(layer.query, at.head, query);
      case StepCursor::kCrossOut:
        return onto_x(layer.cross_out, int64_t{at.head} * d, d);
      case StepCursor::kIn: {
        const int64_t pitch = a.step.mlp_dim;
        const int64_t apart = layer.wi_1 == nullptr ? 0
                                                    : (reinterpret_cast<intptr_t>(layer.wi_1) -
                                                       reinterpret_cast<intptr_t>(layer.wi_0)) /
                                                          static_cast<int64_t>(sizeof(T));
        return {
            static_cast<const T*>(layer.wi_0) + first() * pitch + int64_t{cluster} * a.plan.hidden,
            pitch,
            apart,
            in,
            hidden() / kLane,
            a.plan.slice};
      }
      default:
        return onto_x(layer.wo, int64_t{cluster} * a.plan.hidden, hidden());
    }
  }
  __device__ StepCursor start(int layer) const {
    return {layer, cluster, has_heads() ? StepCursor::kQkv : StepCursor::kIn};
  }
  __device__ void advance(StepCursor& at) const {
    const bool has_cross = a.step.inputs > 0;
    switch (at.kind) {
      case StepCursor::kQkv:
        at.kind = StepCursor::kOut;
        break;
      case StepCursor::kQuery:
        at.kind = StepCursor::kCrossOut;
        break;
      case StepCursor::kOut:
      case StepCursor::kCrossOut: {
        const bool is_self = at.kind == StepCursor::kOut;
        at.head += a.plan.clusters;
        if (at.head < a.step.heads) {
          at.kind = is_self ? StepCursor::kQkv : StepCursor::kQuery;
        } else {
          at.head = cluster;
          at.kind = is_self && has_cross ? StepCursor::kQuery : StepCursor::kIn;
        }
        break;
      }
      case StepCursor::kIn:
        at.kind = StepCursor::kMlpOut;
        break;
      case StepCursor::kMlpOut:
        if (at.layer + 1 < a.step.layers)
          at = start(at.layer + 1);
        else
          at = {a.step.layers, 0, logit_parts() > 0 ? StepCursor::kLogits : StepCursor::kEnd};
        break;
      default:
        if (++at.head >= logit_parts()) at.kind = StepCursor::kEnd;
    }
  }
};

/// Waits until at most `groups` (0 to 15) of the thread's groups of copies are under way.
QT_DEVICE void wait_for_copies(int groups) {
  const auto wait = [&](auto count) {
    if (groups != count) return false;
    simt::cp_async_wait<count>();
    return true;
  };
  wait(Count<15>{}) || wait(Count<14>{}) || wait(Count<13>{}) || wait(Count<12>{}) ||
      wait(Count<11>{}) || wait(Count<10>{}) || wait(Count<9>{}) || wait(Count<8>{}) ||
      wait(Count<7>{}) || wait(Count<6>{}) || wait(Count<5>{}) || wait(Count<4>{}) ||
      wait(Count<3>{}) || wait(Count<2>{}) || wait(Count<1>{}) || wait(Count<0>{});
}

/// What is asked for. Its functions are called, not inlined: a step's code must fit the instruction cache.
template <typename T>
class WeightStream {
 public:
  static constexpr int kLane = kLanes<T>;
  static constexpr size_t portion_bytes() { return size_t{16} * kPasses * kStepThreads; }

  __device__ explicit WeightStream(const BlockShare<T>& share)
      : share_(share), cursor_(share.start(0)) {
    open();
    ask(share.a.plan.portions);
  }
  /// So many portions more, of nothing behind the end. Their places must have been read.
  __device__ __noinline__ void ask(int count) {
    for (; count > 0; --count) {
#pragma unroll
      for (int u = 0; u < kPasses; ++u) {
        if (row_ >= rows_) continue;
        simt::cp_async_16(slot(share_.a.plan.portions, write_, u), from_);
        from_ += pitch_;
        row_ += step_;
      }
      simt::cp_async_commit();
      write_ = write_ + 1 == share_.a.plan.portions ? 0 : write_ + 1;
      left_ -= kPasses * step_;
      if (left_ > 0 || cursor_.kind == StepCursor::kEnd) continue;
      share_.advance(cursor_);
      open();
    }
  }
  /// This thread's word of a portion.
  __device__ static uint32_t* slot(int portions, int portion, int u) {
    const auto ring =
        simt::shared<uint32_t>(0, static_cast<size_t>(portions) * portion_bytes() / 4);
    return ring + ((portion * kPasses + u) * kStepThreads + static_cast<int>(threadIdx.x)) * 4;
  }

 private:
  __device__ __noinline__ void open() {
    row_ = rows_ = left_ = 0;
    if (cursor_.kind == StepCursor::kEnd) return;
    const StepPiece piece = share_.piece(cursor_);
    const int thread = static_cast<int>(threadIdx.x);
    step_ = piece.width.row_step();
    row_ = piece.width.times_in(thread);
    rows_ = row_ < step_ ? piece.rows : 0;
    left_ = piece.rows;
    pitch_ = piece.pitch * step_;
    int group = thread - row_ * piece.width.groups;
    from_ = static_cast<const T*>(piece.from) + row_ * piece.pitch;
    for (; group >= piece.segment_groups; group -= piece.segment_groups) from_ += piece.segment;
    from_ += group * kLane;
  }

  const BlockShare<T> share_;
  StepCursor cursor_;
  const T* from_ = nullptr;
  int64_t pitch_ = 0;
  int row_ = 0, rows_ = 0, step_ = 0, left_ = 0, write_ = 0;
};

/// What is taken, in the same order.
template <typename T>
struct WeightRing {
  WeightStream<T>& stream;
  const int portions;
  int held, read = 0;  // portions asked for and not taken; the first of them

  __device__ explicit WeightRing(WeightStream<T>& from, int of)
      : stream(from), portions(of), held(of) {}
  /// This thread's next kPasses words of 16 bytes.
  __device__ void take(uint32_t (&words)[kPasses][4]) {
    wait_for_copies(--held);
#pragma unroll
    for (int u = 0; u < kPasses; ++u)
      load_words<4>(WeightStream<T>::slot(portions, read, u), words[u]);
    read = read + 1 == portions ? 0 : read + 1;
  }
  /// Asks for what comes next, in place of all that was taken: where the thread would wait otherwise.
  __device__ void refill() {
    stream.ask(portions - held);
    held = portions;
  }
  /// Whether a product must refill as it goes.
  __device__ bool is_long(int rows, int step) const { return 2 * rows > portions * kPasses * step; }
};

}  // namespace quintet::QT_GPU
