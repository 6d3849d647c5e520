// Written by kvgen from gemma3n.kv and yours to keep: kvgen claims no right to it. Edit gemma3n.kv.
// kvgen: gemma3n.kv source 2ba866454d30 body b58f8007fdad codegen 1
// Stored numbers: float, and the 16-bit floats that are widened to it or met as pairs.
#pragma once

#include "_cpu_vector.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace kv {

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

}  // namespace kv
