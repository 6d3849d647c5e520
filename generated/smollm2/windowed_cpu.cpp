// Written by kvgen from smollm2.kv and yours to keep: kvgen claims no right to it. Edit smollm2.kv.
// kvgen: smollm2.kv source 4545e14289df body 76c7282301d3 codegen 1
// Windowed: store tokens and attend to them. Everything but what this policy says of itself is in _cpu.h.
#include "_cpu.h"

#ifndef KV_ELEMENT
#define KV_ELEMENT kv::BFloat16
#endif

namespace {

/// Windowed. A row of the batch counts its tokens from 0: positions.
struct Policy : kv::PolicyDefaults {
  using Element = KV_ELEMENT;  // what is stored: float, kv::Float16 or kv::BFloat16
  static constexpr int kQueryHeads = 9;
  static constexpr int kKvHeads = 3;
  static constexpr int kKeyDim = 64;
  static constexpr int kValueDim = 64;
  static constexpr int64_t kWindow = 256;
  static constexpr int64_t kSinks = 4;
  static constexpr int64_t kRing = 263;
  static constexpr int kFewestSplits = 4;  // of a row's keys, when there are enough of them
  using DecodeQueries = std::integer_sequence<int, 3, 6, 12>;  // sizes of the kernels for a few queries of a kv head

  /// The first position past the sinks that the query at `position` sees; it sees all from there to itself.
  static int64_t first_seen(int64_t position) {
    return std::max({int64_t{kSinks}, position - kWindow + 1});
  }

  static int64_t slot_of(int64_t position) { return position < kSinks ? position : kSinks + (position - kSinks) % kRing; }

  /// How many positions from this one on lie side by side.
  static int64_t run_from(int64_t position) { return position < kSinks ? kSinks - position : kSinks + kRing - slot_of(position); }

  /// Whether an append whose last position is before `end` overwrites what it stores at `position`.
  static bool is_overwritten(int64_t position, int64_t end) { return position >= kSinks && position < end - kRing; }
};

}  // namespace

// What Python calls.
KV_EXPORT int64_t kv_append(const kv::Job<Policy>* job) { return kv::append_all(*job); }
KV_EXPORT int64_t kv_attend(const kv::Job<Policy>* job) { return kv::attend(*job); }
KV_EXPORT int64_t kv_pool_threads() { return kv::pool_threads(); }
KV_EXPORT const char* kv_instructions() { return kv::kInstructions; }
KV_EXPORT void kv_huge_pages(void* memory, int64_t bytes) { kv::ask_for_huge_pages(memory, bytes); }
