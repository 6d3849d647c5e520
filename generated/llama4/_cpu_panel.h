// Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
// kvgen: llama4.kv source fd738860da89 body 9dd0021f2661 codegen 1
// Keys and values as the window kernel meets them
//
// What is not met as it is stored is prepared: 16-bit floats become float; where there are dot products, values of two keys
// become pairs.
#pragma once

#include "_cpu_softmax.h"

#include <cstdint>
#include <type_traits>

namespace kv {

/// How the numbers of a policy are laid out for its window kernel.
template <class Policy>
struct WindowNumbers {
  using Element = typename Policy::Element;
  static constexpr int kKeyDim = Policy::kKeyDim, kValueDim = Policy::kValueDim;
  static constexpr bool kDots = std::is_same_v<Element, BFloat16> && kHasDot && kKeyDim % 2 == 0 && kValueDim % (2 * kLanes) == 0;
  static constexpr bool kAsStored = std::is_same_v<Element, float> && kValueDim % kLanes == 0;
  static constexpr bool kEvenOdd =  // numbers are prepared, and queries laid out, evens before odds in each 2 * kLanes
      std::is_same_v<Element, BFloat16> && !kDots && kKeyDim % (2 * kLanes) == 0 && kValueDim % (2 * kLanes) == 0;
  static constexpr bool kPaired = kDots || kEvenOdd;  // the sums of values are in that order
  static constexpr int kValueWidth = round_up(kValueDim, kLanes);

  using Number = std::conditional_t<kDots, BFloat16, float>;

  /// The keys and values of a span of positions, prepared.
  struct Panel {
    const Number *keys, *values;
  };

  /// Which number lies at `index` where evens go before odds.
  static constexpr int stored_at(int index) {
    const int in_vectors = index % (2 * kLanes);
    return index - in_vectors + (in_vectors < kLanes ? 2 * in_vectors : 2 * (in_vectors - kLanes) + 1);
  }

  /// Values of two keys as pairs, evens before odds in each 2 * kLanes; a missing second key is zeros.
  template <class Stored>
  static KV_INLINE void pair_values(const Stored* low, const Stored* high, Stored* to) {
    for (int d = 0; d < kValueDim; d += 2 * kLanes) {
      const Bits a = load<Bits>(low + d), b = high != nullptr ? load<Bits>(high + d) : Bits{};
      store(to + 2 * d, (a & splat(0xffffu)) | (b << 16));
      store(to + 2 * d + 2 * kLanes, (a >> 16) | (b & splat(0xffff0000u)));
    }
  }

  /// `count` keys, or values, as floats.
  template <int Dim, int Width, class Stored>
  static KV_INLINE void widen_rows(const Stored* from, int count, float* to) {
    if constexpr (kEvenOdd) {
      for (int i = 0; i < count * Dim; i += 2 * kLanes) {
        const Bits pairs = load<Bits>(from + i);
        store(to + i, even(pairs));
        store(to + i + kLanes, odd(pairs));
      }
    } else {
      for (int i = 0; i < count; ++i) widen(from + i * Dim, to + i * Width, Dim, Width);
    }
  }

  /// `count` keys and values, as they are stored where that will do, else in the room given.
  template <class Stored>
  KV_NOINLINE static Panel prepare(const Stored* keys, const Stored* values, int count, Number* prepared_keys,
                                   Number* prepared_values) {
    if constexpr (kAsStored) {
      return {keys, values};
    } else if constexpr (kDots) {
      for (int i = 0; i < count; i += 2)
        pair_values(values + i * kValueDim, i + 1 < count ? values + (i + 1) * kValueDim : nullptr,
                    prepared_values + i * kValueWidth);
      return {keys, prepared_values};
    } else {
      widen_rows<kKeyDim, kKeyDim>(keys, count, prepared_keys);
      widen_rows<kValueDim, kValueWidth>(values, count, prepared_values);
      return {prepared_keys, prepared_values};
    }
  }
};

}  // namespace kv
