// Written by kvgen from mistral.kv and yours to keep: kvgen claims no right to it. Edit mistral.kv.
// kvgen: mistral.kv source 0d21d37929f3 body ebe6095432ff codegen 1
// Attending and appending: the work of a call, shared among threads. A policy's own file says what it is and calls these two.
#pragma once

#include "_cpu_decode.h"
#include "_cpu_threads.h"
#include "_cpu_window.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#define KV_EXPORT extern "C" __attribute__((visibility("default")))

namespace kv {

constexpr int64_t kSplitUnit = 64;          // splits are of whole units of keys
constexpr int64_t kSplitKeys = 512;         // keys of one part of a few queries
constexpr int64_t kWindowSplitKeys = 1024;  // of one part of a chunk of more
constexpr int64_t kSerialWork = 400000;     // products that one thread does faster than two agree to share them

template <int... Sizes>
constexpr int largest(std::integer_sequence<int, Sizes...>) {
  return std::max({0, Sizes...});
}

/// One row's share of the work: chunks of its tokens, each over its keys in splits. It depends on nothing but the row.
template <class Policy>
struct RowPlan {
  static constexpr int kGroup = kGroupOf<Policy>, kChunkTokens = Window<Policy>::kChunkTokens;
  static constexpr int kFewQueries = largest(typename Policy::DecodeQueries());  // up to here: decode, else window

  int64_t tokens, keys;  // keys that its first chunk sees
  int chunks, splits;
  int first_item, first_part;

  bool few() const { return tokens * kGroup <= kFewQueries; }
  int chunk_queries() const { return static_cast<int>(std::min<int64_t>(tokens, kChunkTokens)) * kGroup; }
  int items() const { return chunks * splits * Policy::kKvHeads; }
  int parts() const { return splits > 1 ? items() * chunk_queries() : 0; }
};

template <class Policy>
struct alignas(64) FewScratch {
  float wide[DecodeNumbers<Policy>::kWideFloats];
};

/// A call's memory inside the workspace that the cache owns.
template <class Policy>
struct Memory {
  static constexpr int kPartStride = round_up(std::max(DecodeNumbers<Policy>::kValueWidth, Window<Policy>::kValueWidth) + 2, 16);

  RowPlan<Policy>* plans = nullptr;
  std::atomic<int>* left = nullptr;  // of a row's kv head: splits still to come
  float* parts = nullptr;
  char* scratch = nullptr;  // scratch_bytes a thread
  int64_t scratch_bytes, bytes;

  /// `workspace` null: only `bytes` is asked for.
  Memory(void* workspace, int64_t rows, int64_t part_count, bool all_few, int threads) {
    const int64_t left_at = round(rows * int64_t{sizeof(RowPlan<Policy>)});
    const int64_t parts_at = left_at + round(rows * Policy::kKvHeads * int64_t{sizeof(std::atomic<int>)});
    const int64_t scratch_at = parts_at + round(part_count * kPartStride * int64_t{sizeof(float)});
    scratch_bytes = all_few ? int64_t{sizeof(FewScratch<Policy>)} : int64_t{sizeof(typename Window<Policy>::Scratch)};
    bytes = scratch_at + threads * scratch_bytes + 64;
    if (workspace == nullptr) return;
    auto* base = reinterpret_cast<char*>(round(reinterpret_cast<intptr_t>(workspace)));
    plans = reinterpret_cast<RowPlan<Policy>*>(base);
    left = reinterpret_cast<std::atomic<int>*>(base + left_at);
    parts = reinterpret_cast<float*>(base + parts_at);
    scratch = base + scratch_at;
  }

 private:
  static int64_t round(int64_t bytes) { return (bytes + 63) / 64 * 64; }
};

inline int64_t splits_of(int64_t keys, int64_t keys_per_split, int64_t fewest) {
  const int64_t smaller = divide_up(divide_up(keys, fewest), kSplitUnit) * kSplitUnit;
  return std::max<int64_t>(1, divide_up(keys, std::clamp<int64_t>(smaller, kSplitUnit, keys_per_split)));
}

template <class Policy>
RowPlan<Policy> plan_row(const Job<Policy>& job, int64_t row, int first_item, int first_part) {
  RowPlan<Policy> plan{job.ends[row] - job.firsts[row], 0, 0, 1, first_item, first_part};
  if (plan.tokens == 0) return plan;
  const int64_t per_chunk = std::min<int64_t>(plan.tokens, plan.kChunkTokens);
  plan.chunks = static_cast<int>(divide_up(plan.tokens, per_chunk));
  plan.keys = Spans<Policy>(job, row, 0, job.firsts[row], job.firsts[row] + per_chunk).keys();
  if (plan.chunks == 1)
    plan.splits = static_cast<int>(splits_of(plan.keys, plan.few() ? kSplitKeys : kWindowSplitKeys, Policy::kFewestSplits));
  return plan;
}

/// Padding columns of a row: zeros, and a log-sum-exp of nothing.
template <class Policy>
void clear_padding(const Job<Policy>& job, int64_t row, int64_t from, int64_t to) {
  const size_t number = job.query_is_float ? sizeof(float) : sizeof(typename Policy::Element), bytes = number * Policy::kValueDim;
  for (int64_t head = row * Policy::kQueryHeads; from < to && head < (row + 1) * Policy::kQueryHeads; ++head) {
    const int64_t at = head * job.width + from;
    std::memset(static_cast<char*>(job.out) + static_cast<size_t>(at) * bytes, 0, static_cast<size_t>(to - from) * bytes);
    if (job.lse != nullptr) std::fill(job.lse + at, job.lse + at + (to - from), -INFINITY);
  }
}

/// The work of one attend.
template <class Policy>
class Attend {
  static constexpr int kGroup = kGroupOf<Policy>;
  using Few = DecodeNumbers<Policy>;
  using Many = Window<Policy>;

 public:
  Attend(const Job<Policy>& job, const Memory<Policy>& memory) : job_(job), memory_(memory), scaling_(job.scale) {}

  void operator()(int item, int thread) {
    int64_t row = 0;
    while (item >= memory_.plans[row].first_item + memory_.plans[row].items()) ++row;
    const RowPlan<Policy>& plan = memory_.plans[row];
    item -= plan.first_item;
    const int a_head = plan.chunks * plan.splits, head = item / a_head, part = item % a_head;
    char* scratch = memory_.scratch + thread * memory_.scratch_bytes;
    if (plan.few())
      return few(plan, row, head, part, reinterpret_cast<FewScratch<Policy>&>(*scratch).wide, typename Policy::DecodeQueries());
    window(plan, row, head, part, reinterpret_cast<typename Many::Scratch&>(*scratch));
  }

 private:
  /// By the kernel of the smallest size that holds the row's queries.
  template <int... Sizes>
  void few(const RowPlan<Policy>& plan, int64_t row, int head, int split, float* wide, std::integer_sequence<int, Sizes...>) {
    [[maybe_unused]] const int queries = static_cast<int>(plan.tokens) * kGroup;
    static_cast<void>(((queries <= Sizes && (decode<Sizes>(plan, row, head, split, queries, wide), true)) || ...));
  }

  template <int Queries>
  KV_NOINLINE void decode(const RowPlan<Policy>& plan, int64_t row, int head, int split, int queries, float* wide) {
    Decode<Policy, Queries> decode;
    decode.start(job_, row, head, job_.firsts[row], queries);
    const Spans<Policy> spans(job_, row, head, job_.firsts[row], job_.ends[row]);
    const int64_t per_split = keys_per_split(plan, spans);
    for_each_part(spans, split * per_split, (split + 1) * per_split,
                  [&](const Span<Policy>& span) { decode.attend(span, scaling_, wide); });
    for (int i = 0; i < queries; ++i)
      deliver<Few::kPairs, Few::kValueWidth>(plan, row, head, split, i, i, decode.sum(i), decode.maximum(i), decode.total(i));
    merge<Few::kPairs, Few::kValueWidth>(plan, row, head);
  }

  void window(const RowPlan<Policy>& plan, int64_t row, int head, int part, typename Many::Scratch& scratch) {
    const int chunk = plan.chunks - 1 - part / plan.splits, split = part % plan.splits;  // the longest first
    const int64_t first = chunk * int64_t{Many::kChunkTokens}, end = std::min<int64_t>(plan.tokens, first + Many::kChunkTokens);
    const Spans<Policy> spans(job_, row, head, job_.firsts[row] + first, job_.firsts[row] + end);
    const int64_t per_split = plan.splits > 1 ? keys_per_split(plan, spans) : spans.keys();
    const int queries = static_cast<int>(end - first) * kGroup;
    Many::attend_chunk(job_, row, head, first * kGroup, queries, spans, split * per_split, (split + 1) * per_split, scaling_,
                       scratch);
    for (int i = 0; i < queries; ++i) {
      const typename Many::Block& block = scratch.blocks[i / Many::kBlock];
      const int at = i % Many::kBlock;
      deliver<Many::kPaired, Many::kValueWidth>(plan, row, head, split, i, first * kGroup + i, block.sum[at], block.maximum[at],
                                              block.total[at]);
    }
    merge<Many::kPaired, Many::kValueWidth>(plan, row, head);
  }

  static int64_t keys_per_split(const RowPlan<Policy>& plan, const Spans<Policy>& spans) {
    return divide_up(divide_up(spans.keys(), plan.splits), kSplitUnit) * kSplitUnit;
  }

  Answer answer(int64_t row, int head, int64_t query) const {
    const int64_t column = job_.firsts[row] - job_.starts[row] + query / kGroup;
    return answer_of(job_, row, head * kGroup + query % kGroup, column);
  }

  float* part(const RowPlan<Policy>& plan, int head, int split, int query) const {
    const int64_t index = plan.first_part + int64_t{head * plan.splits + split} * plan.chunk_queries() + query;
    return memory_.parts + index * Memory<Policy>::kPartStride;
  }

  /// A query's result: to its answer, or, when the keys are split, to where its parts meet.
  template <bool Paired, int Width>
  void deliver(const RowPlan<Policy>& plan, int64_t row, int head, int split, int index, int64_t query, const float* sum,
               float maximum, float total) {
    if (plan.splits == 1)
      finish<Policy, Paired>(sum, maximum, total, answer(row, head, query));
    else
      put_part<Width>(part(plan, head, split, index), sum, maximum, total);
  }

  /// Whoever brings the last part adds them all, in ascending order: the answer does not depend on who that is.
  template <bool Paired, int Width>
  void merge(const RowPlan<Policy>& plan, int64_t row, int head) {
    if (plan.splits == 1 || memory_.left[row * Policy::kKvHeads + head].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    for (int query = 0; query < plan.chunk_queries(); ++query) {
      const int64_t stride = int64_t{plan.chunk_queries()} * Memory<Policy>::kPartStride;
      merge_parts<Policy, Paired, Width>(part(plan, head, 0, query), plan.splits, stride, answer(row, head, query));
    }
  }

  const Job<Policy>& job_;
  const Memory<Policy>& memory_;
  const Scaling<Policy> scaling_;
};

/// Returns 0, or how many bytes of workspace it needs; then nothing was done.
template <class Policy>
int64_t attend(const Job<Policy>& job) {
  const int64_t for_plans = Memory<Policy>(nullptr, job.rows, 0, true, 1).bytes;
  if (job.workspace_bytes < for_plans) return for_plans;
  RowPlan<Policy>* plans = Memory<Policy>(job.workspace, job.rows, 0, true, 1).plans;
  int items = 0, parts = 0;
  int64_t work = 0;
  bool all_few = true;
  for (int64_t row = 0; row < job.rows; ++row) {
    plans[row] = plan_row(job, row, items, parts);
    items += plans[row].items();
    parts += plans[row].parts();
    work += plans[row].keys * plans[row].tokens;
    all_few = all_few && plans[row].few();
  }
  const bool alone = work * Policy::kQueryHeads * (Policy::kKeyDim + Policy::kValueDim) < kSerialWork;
  const int threads = job.threads > 0 ? static_cast<int>(job.threads) : alone ? 1 : most_threads();
  const Memory<Policy> memory(job.workspace, job.rows, parts, all_few, threads);
  if (job.workspace_bytes < memory.bytes) return memory.bytes;
  for (int64_t row = 0; row < job.rows; ++row) {
    for (int64_t head = row * Policy::kKvHeads; head < (row + 1) * Policy::kKvHeads; ++head)
      memory.left[head].store(plans[row].splits, std::memory_order_relaxed);
    clear_padding(job, row, 0, job.firsts[row] - job.starts[row]);
    clear_padding(job, row, job.ends[row] - job.starts[row], job.width);
  }
  Attend<Policy> work_of(job, memory);
  Share<Attend<Policy>>(work_of, items, threads).run();
  return 0;
}

template <class Policy>
int64_t append_all(const Job<Policy>& job) {
  const auto one = [&job](int item, int) { append(job, item / Policy::kKvHeads, item % Policy::kKvHeads); };
  const bool alone = job.width * job.rows * Policy::kKvHeads * (Policy::kKeyDim + Policy::kValueDim) < kSerialWork;
  const int threads = job.threads > 0 ? static_cast<int>(job.threads) : alone ? 1 : most_threads();
  Share<const decltype(one)>(one, static_cast<int>(job.rows * Policy::kKvHeads), threads).run();
  return 0;
}

/// Asks for huge pages under memory that stays: fewer steps through page tables for the processor.
inline void ask_for_huge_pages(void* memory, int64_t bytes) {
#if defined(__linux__)
  constexpr intptr_t kPage = 2 << 20;
  const intptr_t address = reinterpret_cast<intptr_t>(memory);
  const intptr_t first = (address + kPage - 1) / kPage * kPage, end = (address + bytes) / kPage * kPage;
  if (first >= end) return;
  constexpr int kHuge = 14, kCollapse = 25;  // MADV_HUGEPAGE; MADV_COLLAPSE, since Linux 6.1: now, also what was touched
  const auto length = static_cast<std::size_t>(end - first);
  madvise(reinterpret_cast<void*>(first), length, kHuge);
  madvise(reinterpret_cast<void*>(first), length, kCollapse);  // a refusal costs nothing
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}

}  // namespace kv
