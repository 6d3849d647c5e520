// Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
// kvgen: llama4.kv source fd738860da89 body 60ee0f184413 codegen 1
// Full: store tokens and attend to them. Everything but what this policy says of itself is in _cpu.h.
#include "_cpu.h"

#ifndef KV_ELEMENT
#define KV_ELEMENT kv::BFloat16
#endif

namespace {

/// Full. A row of the batch counts its tokens from 0: positions.
struct Policy : kv::PolicyDefaults {
  using Element = KV_ELEMENT;  // what is stored: float, kv::Float16 or kv::BFloat16
  static constexpr int kQueryHeads = 40;
  static constexpr int kKvHeads = 8;
  static constexpr int kKeyDim = 128;
  static constexpr int kValueDim = 128;
  static constexpr int kFewestSplits = 1;  // of a row's keys, when there are enough of them
  using DecodeQueries = std::integer_sequence<int, 5, 10>;  // sizes of the kernels for a few queries of a kv head
};

}  // namespace

// What Python calls.
KV_EXPORT int64_t kv_append(const kv::Job<Policy>* job) { return kv::append_all(*job); }
KV_EXPORT int64_t kv_attend(const kv::Job<Policy>* job) { return kv::attend(*job); }
KV_EXPORT int64_t kv_pool_threads() { return kv::pool_threads(); }
KV_EXPORT const char* kv_instructions() { return kv::kInstructions; }
KV_EXPORT void kv_huge_pages(void* memory, int64_t bytes) { kv::ask_for_huge_pages(memory, bytes); }
