// Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
// kvgen: gpt_oss.kv source 9acd408a8dc0 body 693fd9552f92 codegen 1
// Vectors, stored numbers and threads: what the CPU kernels of this package share. C++17, GCC or Clang.
//
// The vectors are the compilers' own (`vector_size`), so +, *, < and [] are instructions of whatever CPU is compiled for:
// 16 lanes with AVX-512, 8 with AVX2, 4 with NEON, SSE and everywhere else. Only what has no operator is spelt by hand.
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__AVX512F__)  // elsewhere its half second of parsing buys nothing
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC's own AVX-512 headers set these off
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wconversion"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include <arm_neon.h>
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed to inlined functions only: no ABI is involved
#endif

#define KV_INLINE inline __attribute__((always_inline))
#define KV_NOINLINE __attribute__((noinline))
#define KV_UNROLL(n) _Pragma(KV_QUOTE(GCC unroll n))
#define KV_QUOTE(x) #x

namespace kv {

// -- Vectors

#if defined(__AVX512BF16__)
constexpr const char* kInstructions = "AVX-512 with bfloat16 dot products";
#elif defined(__AVX512F__)
constexpr const char* kInstructions = "AVX-512";
#elif defined(__AVX2__)
constexpr const char* kInstructions = "AVX2";
#elif defined(__aarch64__)
constexpr const char* kInstructions = "NEON";
#else
constexpr const char* kInstructions = "plain C++";
#endif

#if !defined(KV_LANES)  // a test may ask for the lanes, and the dot products, of another CPU
#if defined(__AVX512F__)
#define KV_LANES 16
#elif defined(__AVX2__)
#define KV_LANES 8
#else
#define KV_LANES 4
#endif
#endif
constexpr int kLanes = KV_LANES;
#if KV_LANES == 16 || defined(__aarch64__)
constexpr bool kManyRegisters = true;  // 32 vector registers, else 16
#else
constexpr bool kManyRegisters = false;
#endif
constexpr int kQuads = kLanes / 4;  // a vector as groups of four lanes

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef float Quad __attribute__((vector_size(16)));
typedef uint32_t QuadBits __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Bits __attribute__((vector_size(4 * kLanes)));

template <class To, class From>
KV_INLINE To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class V = Vec>
KV_INLINE V load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class V>
KV_INLINE void store(void* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

KV_INLINE Vec splat(float x) { return x - Vec{}; }
KV_INLINE Ints splat(int32_t x) { return x - Ints{}; }
KV_INLINE Bits splat(uint32_t x) { return x - Bits{}; }

KV_INLINE Vec maximum(Vec a, Vec b) { return a > b ? a : b; }
KV_INLINE Vec select(Ints condition, Vec yes, Vec no) { return condition ? yes : no; }

KV_INLINE bool any(Ints condition) {
#if KV_LANES == 16 && defined(__AVX512F__)
  return _mm512_test_epi32_mask(bit_cast<__m512i>(condition), bit_cast<__m512i>(condition)) != 0;
#elif KV_LANES == 8 && defined(__AVX2__)
  typedef long long Longs __attribute__((vector_size(32)));
  return __builtin_ia32_ptestz256(bit_cast<Longs>(condition), bit_cast<Longs>(condition)) == 0;
#else
  int32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= condition[i];
  return bits != 0;
#endif
}

template <std::size_t... I>
KV_INLINE Bits repeat_quad(const void* from, std::index_sequence<I...>) {
  const Quad quad = load<Quad>(from);
  return bit_cast<Bits>(Vec{quad[I % 4]...});
}

/// The four dwords at `from`, repeated in every quad.
KV_INLINE Bits load_quads(const void* from) {
#if KV_LANES == 16 && defined(__AVX512F__)
  return bit_cast<Bits>(_mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(from))));
#elif KV_LANES == 8 && defined(__AVX2__) && !defined(__clang__)
  return bit_cast<Bits>(__builtin_ia32_vbroadcastf128_ps256(static_cast<const Quad*>(from)));
#elif KV_LANES == 8 && defined(__clang__)
  const Quad quad = load<Quad>(from);
  return bit_cast<Bits>(__builtin_shufflevector(quad, quad, 0, 1, 2, 3, 0, 1, 2, 3));
#else
  return repeat_quad(from, std::make_index_sequence<kLanes>());
#endif
}

/// Lane i of a quad of the answer: lane P<4 of the quad of `a`, or lane P-4 of that of `b`.
template <int P0, int P1, int P2, int P3, std::size_t... I>
KV_INLINE Vec shuffle_lanes(Vec a, Vec b, std::index_sequence<I...>) {
  constexpr int pattern[4] = {P0, P1, P2, P3};
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(
      a, b, (static_cast<int>(I) / 4 * 4 + pattern[I % 4] + (pattern[I % 4] < 4 ? 0 : kLanes - 4))...);
#else
  return __builtin_shuffle(
      a, b, Ints{(static_cast<int>(I) / 4 * 4 + pattern[I % 4] + (pattern[I % 4] < 4 ? 0 : kLanes - 4))...});
#endif
}

template <int P0, int P1, int P2, int P3>
KV_INLINE Vec shuffle(Vec a, Vec b) {
  return shuffle_lanes<P0, P1, P2, P3>(a, b, std::make_index_sequence<kLanes>());
}

/// Sums within each quad: lane i of a quad of the answer is the sum of that quad of `v[i]`.
KV_INLINE Vec sum_quads(const Vec* v) {
  const Vec x = shuffle<0, 4, 1, 5>(v[0], v[1]) + shuffle<2, 6, 3, 7>(v[0], v[1]);
  const Vec y = shuffle<0, 4, 1, 5>(v[2], v[3]) + shuffle<2, 6, 3, 7>(v[2], v[3]);
  return shuffle<0, 1, 4, 5>(x, y) + shuffle<2, 3, 6, 7>(x, y);
}

/// The largest, or the sum, of each quad, in all its lanes.
KV_INLINE Vec quad_maximum(Vec v) {
  v = maximum(v, shuffle<1, 0, 3, 2>(v, v));
  return maximum(v, shuffle<2, 3, 0, 1>(v, v));
}

KV_INLINE Vec quad_sum(Vec v) {
  v += shuffle<1, 0, 3, 2>(v, v);
  return v + shuffle<2, 3, 0, 1>(v, v);
}

/// 2^x to 1e-7 of itself; 0 below 2^-126, so that nothing is denormal. x <= 127.
/// The polynomial is Cephes' exp2f (Moshier 1989), for the fraction in [-0.5, 0.5].
KV_INLINE Vec exp2(Vec x) {
  const Vec magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number, held in the low bits
  const Vec bounded = maximum(x, splat(-126.0f));
  const Vec rounded = bounded + magic;
  const Vec f = bounded - (rounded - magic);
  Vec p = splat(1.535336188319500e-4f);
  p = p * f + splat(1.339887440266574e-3f);
  p = p * f + splat(9.618437357674640e-3f);
  p = p * f + splat(5.550332471162809e-2f);
  p = p * f + splat(2.402264791363012e-1f);
  p = p * f + splat(6.931472028550421e-1f);
  p = p * f + splat(1.0f);
  const Vec power = bit_cast<Vec>(bit_cast<Bits>(p) + (bit_cast<Bits>(rounded) << 23));
  return select(x < splat(-126.0f), Vec{}, power);
}

/// tanh(x) to 3e-7 of itself. The polynomial near 0 is Cephes' tanhf; elsewhere 1 - 2 / (e^2x + 1).
KV_INLINE Vec tanh(Vec x) {
  const Vec size = maximum(x, -x), square = x * x;
  Vec p = splat(-5.70498872745e-3f);
  p = p * square + splat(2.06390887954e-2f);
  p = p * square + splat(-5.37397155531e-2f);
  p = p * square + splat(1.33314422036e-1f);
  p = p * square + splat(-3.33332819422e-1f);
  const Vec near = p * square * x + x;
  const Vec bounded = select(size < splat(15.0f), size, splat(15.0f));
  const Vec far = splat(1.0f) - splat(2.0f) / (exp2(bounded * splat(2.885390081777927f)) + splat(1.0f));
  return select(size < splat(0.625f), near, select(x < Vec{}, -far, far));
}

// -- Stored numbers

struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

KV_INLINE float to_float(float x) { return x; }
KV_INLINE float to_float(BFloat16 x) { return bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
KV_INLINE float to_float(Float16 x) {
  // The exponent moves from bias 15 to 127 by a product, which also makes denormals right; infinity and NaN are put back.
  const uint32_t magnitude = x.bits & 0x7fffu, sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t scaled = bit_cast<uint32_t>(bit_cast<float>(magnitude << 13) * 0x1p112f);
  return bit_cast<float>(sign | (magnitude >= 0x7c00u ? scaled | 0x7f800000u : scaled));
}

KV_INLINE void from_float(float x, float& to) { to = x; }
KV_INLINE void from_float(float x, BFloat16& to) {  // to nearest, ties to even; NaN stays NaN
  const uint32_t bits = bit_cast<uint32_t>(x);
  to.bits = static_cast<uint16_t>(x == x ? (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16 : (bits >> 16) | 0x40u);
}
KV_INLINE void from_float(float x, Float16& to) {
  // A float sum whose last place is float16's rounds for us; from M. Dukhan's FP16.
  const uint32_t bits = bit_cast<uint32_t>(x), sign = (bits >> 16) & 0x8000u, doubled = bits << 1;
  const float scaled = (std::fabs(x) * 0x1p112f) * 0x1p-110f;
  const uint32_t bias = std::max(doubled & 0xff000000u, 0x71000000u);
  const uint32_t sum = bit_cast<uint32_t>(bit_cast<float>((bias >> 1) + 0x07800000u) + scaled);
  const uint32_t rounded = ((sum >> 13) & 0x7c00u) + (sum & 0x0fffu);
  to.bits = static_cast<uint16_t>(sign | (doubled > 0xff000000u ? 0x7e00u : rounded));
}

/// `count` numbers as float, then zeros up to `width`.
template <class Element>
KV_INLINE void widen(const Element* from, float* to, int count, int width) {
  int i = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<Element, Float16>) {
    typedef short Halves __attribute__((vector_size(16)));
    for (; i + 8 <= count; i += 8) store(to + i, __builtin_ia32_vcvtph2ps256(load<Halves>(from + i)));
  }
#endif
  for (; i < count; ++i) to[i] = to_float(from[i]);
  for (; i < width; ++i) to[i] = 0.0f;
}

/// A dword holds two bfloat16: the even one below, the odd one above. As floats:
KV_INLINE Vec even(Bits pairs) { return bit_cast<Vec>(pairs << 16); }
KV_INLINE Vec odd(Bits pairs) { return bit_cast<Vec>(pairs & splat(0xffff0000u)); }

/// Two vectors of finite floats rounded to bfloat16, as pairs.
KV_INLINE Bits to_pairs(Vec evens, Vec odds) {
  const Bits a = bit_cast<Bits>(evens), b = bit_cast<Bits>(odds), half = splat(0x7fffu), one = splat(1u);
  return ((a + half + ((a >> 16) & one)) >> 16) | ((b + half + ((b >> 16) & one)) & splat(0xffff0000u));
}

#if KV_LANES == 16 && defined(__AVX512BF16__)
constexpr bool kHasDot = true;
/// sum + the dot product of two pairs, in every lane.
KV_INLINE Vec dot_pairs(Bits a, Bits b, Vec sum) {
  return _mm512_dpbf16_ps(sum, bit_cast<__m512bh>(a), bit_cast<__m512bh>(b));
}
#elif KV_LANES == 4 && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
constexpr bool kHasDot = true;
KV_INLINE Vec dot_pairs(Bits a, Bits b, Vec sum) {
  return bit_cast<Vec>(vbfdotq_f32(bit_cast<float32x4_t>(sum), bit_cast<bfloat16x8_t>(a), bit_cast<bfloat16x8_t>(b)));
}
#else
#if defined(KV_DOT_PRODUCTS)
constexpr bool kHasDot = true;
#else
constexpr bool kHasDot = false;
#endif
KV_INLINE Vec dot_pairs(Bits a, Bits b, Vec sum) { return odd(a) * odd(b) + (even(a) * even(b) + sum); }
#endif

KV_INLINE void prefetch(const void* address) { __builtin_prefetch(address, 0, 2); }  // to the second-level cache

// -- Threads

/// The pool of the OpenMP runtime that the process has already loaded, torch's own: a second pool would spin against it.
struct Pool {
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
  int (*most_threads)() = nullptr;
  int (*thread_number)() = nullptr;
};

inline int find_pool(dl_phdr_info* library, std::size_t, void* found) {
  if (library->dlpi_name == nullptr || std::strstr(library->dlpi_name, "libgomp") == nullptr) return 0;
  void* handle = dlopen(library->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return 0;
  Pool& pool = *static_cast<Pool*>(found);
  pool.parallel = reinterpret_cast<decltype(pool.parallel)>(dlsym(handle, "GOMP_parallel"));
  pool.most_threads = reinterpret_cast<decltype(pool.most_threads)>(dlsym(handle, "omp_get_max_threads"));
  pool.thread_number = reinterpret_cast<decltype(pool.thread_number)>(dlsym(handle, "omp_get_thread_num"));
  return pool.parallel != nullptr && pool.most_threads != nullptr && pool.thread_number != nullptr;
}

inline const Pool* pool() {
  static const Pool found = [] {
    Pool candidate;
    return dl_iterate_phdr(find_pool, &candidate) != 0 ? candidate : Pool();
  }();
  return found.parallel != nullptr ? &found : nullptr;
}

/// As many as torch uses, or 1: any other number would tear its team down.
inline int most_threads() { return pool() != nullptr ? std::max(1, pool()->most_threads()) : 1; }

/// Items 0 to `count` - 1, each done once by one of `threads`. A thread takes the items of its own range, then of others'.
template <class Work>
class Share {
 public:
  Share(Work& work, int count, int threads) : work_(work), count_(count), threads_(std::min(threads, kMost)) {
    for (int t = 0; t < threads_; ++t) next_[t].item.store(start(t), std::memory_order_relaxed);
  }

  void run() {
    if (threads_ == 1) return work_on(0);
    pool()->parallel([](void* self) { static_cast<Share*>(self)->work_on(pool()->thread_number()); }, this,
                     static_cast<unsigned>(threads_), 0);
  }

 private:
  static constexpr int kMost = 1024;
  struct alignas(64) Next {
    std::atomic<int> item;
  };

  int start(int thread) const { return static_cast<int>(static_cast<int64_t>(count_) * thread / threads_); }

  void work_on(int thread) {
    for (int i = 0; i < threads_; ++i) {
      const int range = (thread + i) % threads_, end = start(range + 1);
      for (;;) {
        const int item = next_[range].item.fetch_add(1, std::memory_order_relaxed);
        if (item >= end) break;
        work_(item, thread);
      }
    }
  }

  Work& work_;
  int count_, threads_;
  Next next_[kMost];
};

}  // namespace kv
