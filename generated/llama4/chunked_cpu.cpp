// Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
// kvgen: llama4.kv source fd738860da89 body 3cf526b4d424 codegen 1
// Chunked: store tokens and attend to them. Everything but what this policy says of itself is in _cpu.h.
#include "_cpu.h"

#ifndef KV_ELEMENT
#define KV_ELEMENT kv::BFloat16
#endif

namespace {

/// Chunked. A row of the batch counts its tokens from 0: positions.
struct Policy : kv::PolicyDefaults {
  using Element = KV_ELEMENT;  // what is stored: float, kv::Float16 or kv::BFloat16
  static constexpr int kQueryHeads = 40;
  static constexpr int kKvHeads = 8;
  static constexpr int kKeyDim = 128;
  static constexpr int kValueDim = 128;
  static constexpr int64_t kChunk = 8192;
  static constexpr int64_t kRing = 8199;
  static constexpr int kFewestSplits = 1;  // of a row's keys, when there are enough of them
  using DecodeQueries = std::integer_sequence<int, 5, 10>;  // sizes of the kernels for a few queries of a kv head

  /// The first position that the query at `position` sees; it sees all from there to itself.
  static int64_t first_seen(int64_t position) {
    return std::max({int64_t{0}, position - position % kChunk});
  }

  static int64_t slot_of(int64_t position) { return position % kRing; }

  /// How many positions from this one on lie side by side.
  static int64_t run_from(int64_t position) { return kRing - slot_of(position); }

  /// Whether an append whose last position is before `end` overwrites what it stores at `position`.
  static bool is_overwritten(int64_t position, int64_t end) { return position < end - kRing; }
};

}  // namespace

// What Python calls.
KV_EXPORT int64_t kv_append(const kv::Job<Policy>* job) { return kv::append_all(*job); }
KV_EXPORT int64_t kv_attend(const kv::Job<Policy>* job) { return kv::attend(*job); }
KV_EXPORT int64_t kv_pool_threads() { return kv::pool_threads(); }
KV_EXPORT const char* kv_instructions() { return kv::kInstructions; }
KV_EXPORT void kv_huge_pages(void* memory, int64_t bytes) { kv::ask_for_huge_pages(memory, bytes); }
