// Written by kvgen from smollm2.kv and yours to keep: kvgen claims no right to it. Edit smollm2.kv.
// kvgen: smollm2.kv source 4545e14289df body f9ab23d15cb3 codegen 1
// Vectors of floats. C++17, GCC or Clang.
//
// They are the compilers' own (`vector_size`), so +, *, < and [] are instructions of whatever CPU is compiled for:
// 16 lanes with AVX-512, 8 with AVX2, 4 with NEON, SSE and everywhere else. Only what has no operator is spelt by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
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

/// Decoding: a vector of scores is of kVectorQueries queries with kVectorKeys keys, lane kVectorKeys * query + key. As few queries
/// as keep a register for each: what a key is multiplied by is then least often loaded.
constexpr int kVectorQueries = kLanes == 16 ? 4 : 1, kVectorKeys = kLanes / kVectorQueries;

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef uint32_t PartBits __attribute__((vector_size(4 * kVectorKeys)));  // a query's part of a vector
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

/// `v`, in a register: GCC would rather load a number again for each of its products, and loads are what runs out.
template <class V>
KV_INLINE V keep(V v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__AVX__)
  asm("" : "+x"(v));
#endif
  return v;
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
KV_INLINE Bits repeat(PartBits part, std::index_sequence<I...>) {
  return Bits{part[I % kVectorKeys]...};
}

/// The kVectorKeys dwords at `from`, for each of a vector's queries.
KV_INLINE Bits load_repeated(const void* from) {
#if KV_LANES == 16 && defined(__AVX512F__)
  return bit_cast<Bits>(_mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(from))));
#else
  if constexpr (kVectorQueries == 1) return load<Bits>(from);
  return repeat(load<PartBits>(from), std::make_index_sequence<kLanes>());
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

/// One half of `a`, then one half of `b`: 0 the lower, 1 the upper.
template <int OfA, int OfB, std::size_t... I>
KV_INLINE Vec join_halves(Vec a, Vec b, std::index_sequence<I...>) {
  constexpr int half = kLanes / 2;
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, (static_cast<int>(I) + (I < half ? OfA * half : half + OfB * half))...);
#else
  return __builtin_shuffle(a, b, Ints{(static_cast<int>(I) + (I < half ? OfA * half : half + OfB * half))...});
#endif
}

template <int OfA, int OfB>
KV_INLINE Vec join_halves(Vec a, Vec b) {
  return join_halves<OfA, OfB>(a, b, std::make_index_sequence<kLanes>());
}

/// From sums over lanes for Keys keys each, the first in `a`: those for all of them, with half as many lanes left to be added.
template <int Keys>
KV_INLINE Vec fold(Vec a, Vec b) {
  if constexpr (Keys == 1)
    return shuffle<0, 4, 1, 5>(a, b) + shuffle<2, 6, 3, 7>(a, b);
  else if constexpr (Keys == 2)
    return shuffle<0, 1, 4, 5>(a, b) + shuffle<2, 3, 6, 7>(a, b);
  else
    return join_halves<0, 0>(a, b) + join_halves<1, 1>(a, b);
}

/// Count vectors for Keys keys each, folded.
template <int Keys, int Count>
KV_INLINE Vec fold_all(const Vec* v) {
  if constexpr (Count == 1)
    return v[0];
  else
    return fold<Keys * Count / 2>(fold_all<Keys, Count / 2>(v), fold_all<Keys, Count / 2>(v + Count / 2));
}

/// The largest, or the sum, of each query's lanes, in all of them.
KV_INLINE Vec query_maximum(Vec v) {
  v = maximum(v, shuffle<1, 0, 3, 2>(v, v));
  v = maximum(v, shuffle<2, 3, 0, 1>(v, v));
  if constexpr (kVectorKeys == 8) v = maximum(v, join_halves<1, 0>(v, v));
  return v;
}

KV_INLINE Vec query_sum(Vec v) {
  v += shuffle<1, 0, 3, 2>(v, v);
  v += shuffle<2, 3, 0, 1>(v, v);
  if constexpr (kVectorKeys == 8) v += join_halves<1, 0>(v, v);
  return v;
}

/// 2^x of each, to 1e-7 of itself; 0 below 2^-126, so that nothing is denormal. x <= 127.
/// The polynomial is Cephes' exp2f (Moshier 1989), for the fraction in [-0.5, 0.5]. Each step is done for all before the next:
/// one whole chain after the other would fill the processor with steps that wait.
template <int N>
KV_INLINE void exp2(Vec (&x)[N]) {
  constexpr float kPolynomial[] = {1.339887440266574e-3f, 9.618437357674640e-3f, 5.550332471162809e-2f,
                                   2.402264791363012e-1f, 6.931472028550421e-1f, 1.0f};
  const Vec magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number, held in the low bits
  Vec rounded[N], f[N], p[N];
  for (int i = 0; i < N; ++i) {
    const Vec bounded = maximum(x[i], splat(-126.0f));
    rounded[i] = keep(bounded + magic);
    f[i] = bounded - (rounded[i] - magic);
    p[i] = splat(1.535336188319500e-4f);
  }
  KV_UNROLL(8)
  for (float coefficient : kPolynomial)
    for (int i = 0; i < N; ++i) p[i] = keep(p[i] * f[i] + splat(coefficient));
  for (int i = 0; i < N; ++i) {
    const Vec power = bit_cast<Vec>(bit_cast<Bits>(p[i]) + (bit_cast<Bits>(rounded[i]) << 23));
    x[i] = select(x[i] < splat(-126.0f), Vec{}, power);
  }
}

KV_INLINE Vec exp2(Vec x) {
  Vec one[] = {x};
  exp2(one);
  return one[0];
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

}  // namespace kv
