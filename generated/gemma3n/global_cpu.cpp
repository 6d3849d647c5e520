// Written by kvgen from gemma3n.kv and yours to keep: kvgen claims no right to it. Edit gemma3n.kv.
// kvgen: gemma3n.kv source 2ba866454d30 body 55f2c59a25d6 codegen 1
// Global: store tokens and attend to them. Everything but what this policy says of itself is in _cpu.h.
#include "_cpu.h"

#ifndef KV_ELEMENT
#define KV_ELEMENT kv::BFloat16
#endif

namespace {

/// Global. A row of the batch counts its tokens from 0: positions.
struct Policy : kv::PolicyDefaults {
  using Element = KV_ELEMENT;  // what is stored: float, kv::Float16 or kv::BFloat16
  static constexpr int kQueryHeads = 8;
  static constexpr int kKvHeads = 2;
  static constexpr int kKeyDim = 256;
  static constexpr int kValueDim = 256;
  static constexpr int kFewestSplits = 4;  // of a row's keys, when there are enough of them
  using DecodeQueries = std::integer_sequence<int, 4, 8>;  // sizes of the kernels for a few queries of a kv head
};

}  // namespace

// What Python calls.
KV_EXPORT int64_t kv_append(const kv::Job<Policy>* job) { return kv::append_all(*job); }
KV_EXPORT int64_t kv_attend(const kv::Job<Policy>* job) { return kv::attend(*job); }
KV_EXPORT int64_t kv_pool_threads() { return kv::pool_threads(); }
KV_EXPORT const char* kv_instructions() { return kv::kInstructions; }
KV_EXPORT void kv_huge_pages(void* memory, int64_t bytes) { kv::ask_for_huge_pages(memory, bytes); }
