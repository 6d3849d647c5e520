// Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
// kvgen: llama4.kv source fd738860da89 body f1f329204148 codegen 1
// What is asked, where the keys and values of a query lie, and storing new ones.
//
// `Policy`, here and in all headers, is the struct in a policy's own file: its heads, dims, type of stored number, what a query
// sees and in which slot a position lies.
#pragma once

#include "_cpu_numbers.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace kv {

/// What holds of a policy that says nothing else. A row of the batch counts its tokens from 0: positions.
struct PolicyDefaults {
  static constexpr int64_t kSinks = 0;        // positions that are seen for ever, the first ones
  static constexpr float kSoftcap = 0.0f;     // of scores; 0: none
  static constexpr bool kSinkLogits = false;  // whether a head's softmax has one more term, with no value

  /// The first sink that the query at a position sees; it sees all from there on.
  static int64_t first_sink_seen(int64_t) { return 0; }

  /// The first position past the sinks that the query at a position sees; it sees all from there to itself.
  static int64_t first_seen(int64_t) { return 0; }

  static int64_t slot_of(int64_t position) { return position; }

  /// How many positions from this one on lie side by side.
  static int64_t run_from(int64_t) { return INT64_MAX; }

  /// Whether an append whose last position is before `end` overwrites what it stores at `position`.
  static bool is_overwritten(int64_t, int64_t) { return false; }
};

/// One call, filled in by the Python side: `_cpu.py` has the same fields in the same order. Strides are in numbers, by row,
/// head and column; null: the numbers lie side by side.
template <class Policy>
struct Job {
  using Element = typename Policy::Element;

  int64_t rows, width, slots;             // of the batch; columns of the append; slots a row of the planes
  const int64_t *starts, *firsts, *ends;  // column i of row r is position starts[r] + i, real inside [firsts[r], ends[r])
  Element *keys, *values;                 // planes [rows, kKvHeads, slots, dim]
  const Element *new_keys, *new_values;   // the columns [rows, kKvHeads, width, dim]; attend: null if they are in the planes
  const int64_t *key_strides, *value_strides;  // append: of the columns
  Element* overwritten;                   // append: keys, then values that were in the columns' slots; null: nobody asks
  const void* query;                      // [rows, kQueryHeads, width, kKeyDim]
  const int64_t* query_strides;
  int64_t query_is_float;                 // float, else Element; also of `out`
  void* out;                              // [rows, kQueryHeads, width, kValueDim], side by side
  float* lse;                             // [rows, kQueryHeads, width]; null: nobody asks
  const float* sink_logits;               // [kQueryHeads]; only read where the policy declares them
  double scale;
  void* workspace;
  int64_t workspace_bytes;
  int64_t threads;                        // 0: as many as torch uses, where the work is worth it
};

/// Query heads that read one pair of keys and values.
template <class Policy>
constexpr int kGroupOf = Policy::kQueryHeads / Policy::kKvHeads;

/// The first number of a row, head and column.
KV_INLINE int64_t offset_of(const int64_t* strides, int64_t heads, int64_t width, int64_t dim, int64_t row, int64_t head,
                            int64_t column) {
  if (strides == nullptr) return ((row * heads + head) * width + column) * dim;
  return row * strides[0] + head * strides[1] + column * strides[2];
}

constexpr int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }
constexpr int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

/// Stores the real columns of one row and kv head, each in the slot of its position; of more than a ring holds, the newest.
template <class Policy>
KV_NOINLINE void append(const Job<Policy>& job, int64_t row, int64_t head) {
  using Element = typename Policy::Element;
  constexpr int kHeads = Policy::kKvHeads, kKeyDim = Policy::kKeyDim, kValueDim = Policy::kValueDim;
  const int64_t plane = row * kHeads + head;
  Element* old_values = job.overwritten == nullptr ? nullptr : job.overwritten + job.rows * kHeads * job.width * kKeyDim;
  for (int64_t position = job.firsts[row]; position < job.ends[row]; ++position) {
    if (Policy::is_overwritten(position, job.ends[row])) continue;
    const int64_t column = position - job.starts[row], slot = plane * job.slots + Policy::slot_of(position);
    Element* key = job.keys + slot * kKeyDim;
    Element* value = job.values + slot * kValueDim;
    if (job.overwritten != nullptr) {
      const int64_t old = plane * job.width + column;
      std::memcpy(job.overwritten + old * kKeyDim, key, kKeyDim * sizeof(Element));
      std::memcpy(old_values + old * kValueDim, value, kValueDim * sizeof(Element));
    }
    const int64_t new_key = offset_of(job.key_strides, kHeads, job.width, kKeyDim, row, head, column);
    const int64_t new_value = offset_of(job.value_strides, kHeads, job.width, kValueDim, row, head, column);
    std::memcpy(key, job.new_keys + new_key, kKeyDim * sizeof(Element));
    std::memcpy(value, job.new_values + new_value, kValueDim * sizeof(Element));
  }
}

/// Positions [first, end) whose keys and values lie side by side.
template <class Policy>
struct Span {
  const typename Policy::Element *keys, *values;
  int64_t first, end;

  int64_t count() const { return end - first; }
  Span part(int64_t from, int64_t to) const {
    return {keys + (from - first) * Policy::kKeyDim, values + (from - first) * Policy::kValueDim, from, to};
  }

  /// The first position of the span that the query at `position` sees; it sees the rest of it up to itself.
  int64_t first_seen(int64_t position) const {
    return first < Policy::kSinks ? Policy::first_sink_seen(position) : Policy::first_seen(position);
  }
};

/// All that some queries of a row and kv head see, in ascending order, as few spans.
template <class Policy>
class Spans {
 public:
  /// What the queries at positions [first, end) see.
  Spans(const Job<Policy>& job, int64_t row, int64_t head, int64_t first, int64_t end) {
    const int64_t plane = row * Policy::kKvHeads + head;
    start_ = job.starts[row];
    stored_ = job.new_keys == nullptr ? job.ends[row] : job.firsts[row];
    keys_ = job.keys + plane * job.slots * Policy::kKeyDim;
    values_ = job.values + plane * job.slots * Policy::kValueDim;
    if (job.new_keys != nullptr) {
      new_keys_ = job.new_keys + plane * job.width * Policy::kKeyDim;
      new_values_ = job.new_values + plane * job.width * Policy::kValueDim;
    }
    if (Policy::kSinks > 0) add(Policy::first_sink_seen(first), std::min(Policy::kSinks, end));
    add(Policy::first_seen(first), end);
  }

  const Span<Policy>* begin() const { return spans_; }
  const Span<Policy>* end() const { return spans_ + count_; }
  int64_t keys() const {
    int64_t sum = 0;
    for (const Span<Policy>& span : *this) sum += span.count();
    return sum;
  }

 private:
  void add(int64_t first, int64_t end) {
    const int64_t stored_end = std::min(end, stored_);
    while (first < stored_end) {  // to the end of a ring, then on from its start
      const int64_t slot = Policy::slot_of(first), run = std::min(stored_end - first, Policy::run_from(first));
      push(keys_, values_, slot, first, first + run);
      first += run;
    }
    if (first < end) push(new_keys_, new_values_, first - start_, first, end);
  }

  void push(const typename Policy::Element* keys, const typename Policy::Element* values, int64_t at, int64_t first, int64_t end) {
    spans_[count_++] = {keys + at * Policy::kKeyDim, values + at * Policy::kValueDim, first, end};
  }

  const typename Policy::Element *keys_, *values_, *new_keys_ = nullptr, *new_values_ = nullptr;
  int64_t start_, stored_;  // the position of column 0; positions before `stored_` are in the planes
  Span<Policy> spans_[6];
  int count_ = 0;
};

/// Calls `use` with the spans' keys [from, to), counted from the first.
template <class Policy, class Use>
KV_INLINE void for_each_part(const Spans<Policy>& spans, int64_t from, int64_t to, Use&& use) {
  for (const Span<Policy>& span : spans) {
    const int64_t first = std::max<int64_t>(from, 0), end = std::min(to, span.count());
    if (first < end) use(span.part(span.first + first, span.first + end));
    from -= span.count();
    to -= span.count();
  }
}

template <class Policy>
KV_INLINE int64_t query_offset(const Job<Policy>& job, int64_t row, int64_t head, int64_t column) {
  return offset_of(job.query_strides, Policy::kQueryHeads, job.width, Policy::kKeyDim, row, head, column);
}

/// A query's numbers as float, then zeros up to `width`.
template <class Policy>
KV_NOINLINE void load_query(const Job<Policy>& job, int64_t row, int64_t head, int64_t column, float* to, int width) {
  const int64_t at = query_offset(job, row, head, column);
  if (job.query_is_float)
    widen(static_cast<const float*>(job.query) + at, to, Policy::kKeyDim, width);
  else
    widen(static_cast<const typename Policy::Element*>(job.query) + at, to, Policy::kKeyDim, width);
}

}  // namespace kv
