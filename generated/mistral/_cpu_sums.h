// Written by kvgen from mistral.kv and yours to keep: kvgen claims no right to it. Edit mistral.kv.
// kvgen: mistral.kv source 0d21d37929f3 body 2ce15109c4d9 codegen 1
// Sums of values for a few queries of one kv head: a block of queries and value vectors, over a whole tile, in registers.
#pragma once

#include "_cpu_softmax.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kv {

/// Numbers are computed with as they are stored, two bfloat16 a dword; others are first widened to float, a tile at a time.
template <class Policy>
struct DecodeNumbers {
  using Element = typename Policy::Element;
  static constexpr int kKeyDim = Policy::kKeyDim, kValueDim = Policy::kValueDim;
  static constexpr bool kPairs = std::is_same_v<Element, BFloat16> && kKeyDim % (2 * kVectorKeys) == 0 && kValueDim % (2 * kLanes) == 0;
  static constexpr bool kAsStored =
      kPairs || (std::is_same_v<Element, float> && kKeyDim % kVectorKeys == 0 && kValueDim % kLanes == 0);
  static constexpr bool kDots = kPairs && kHasDot;
  static constexpr int kPerDword = kPairs ? 2 : 1;
  static constexpr int kKeyWidth = kAsStored ? kKeyDim : round_up(kKeyDim, kVectorKeys);
  static constexpr int kValueWidth = kAsStored ? kValueDim : round_up(kValueDim, kLanes);
  using Number = std::conditional_t<kPairs, BFloat16, float>;

  /// Keys whose scores are held at once. This tile and the next, which is asked for meanwhile, stay in the first-level cache, keys
  /// and values. Dot products go through tiles so fast that the second-level cache has to take what is asked for.
  static constexpr int kWidestBytes = std::max(kKeyWidth, kValueWidth) * int{sizeof(Number)};
  static constexpr int kTile = kDots ? 64 : kWidestBytes <= 128 ? 32 : 16;
  static constexpr int kWideFloats = kAsStored ? 1 : kTile * std::max(kKeyWidth, kValueWidth);

  static KV_INLINE void prefetch(const void* address) { __builtin_prefetch(address, 0, kDots ? 2 : 3); }
};

/// What the queries of one `Decode` have summed.
template <class Policy, int Queries>
class ValueSums : DecodeNumbers<Policy> {
  using Numbers = DecodeNumbers<Policy>;
  using typename Numbers::Number;
  using Numbers::kPairs, Numbers::kAsStored, Numbers::kDots, Numbers::kValueWidth, Numbers::kTile, Numbers::prefetch;

 public:
  static constexpr int kVectors = (Queries + kVectorQueries - 1) / kVectorQueries;  // that hold a number of each query
  static constexpr int kScores = kTile / kVectorKeys;  // vectors: the scores of a vector of queries with a tile

  /// Of all queries with a tile, kScores for each vector of queries; lane kVectorKeys * query + key of a vector is a score.
  using Scores = Vec[kVectors * kScores];

  KV_INLINE void clear() { std::memset(sum_, 0, sizeof sum_); }
  const float* of(int query) const { return sum_[query]; }

  KV_INLINE void multiply(int query, float factor) {
    for (int d = 0; d < kValueWidth; d += kLanes) store(sum_[query] + d, load(sum_[query] + d) * splat(factor));
  }

  template <bool Edge>
  KV_INLINE void add(const Number* values, int count, const Scores& weights) {
    alignas(64) Paired paired;
    if constexpr (kDots) pair_weights<Edge>(count, weights, paired);
    for (int row = 0; row < Queries; row += kRows)
      for (int column = 0; column < kAllVectors; column += kColumns) {
        const Number* from = values + column * kLanes;
        if constexpr (kDots)
          add_pairs<Edge>(from, count, paired, row, column);
        else if (!Edge && row == 0 && column % kLineColumns == 0)
          add_singles<Edge, !Edge>(from, values + kTile * kValueWidth, count, weights, row, column);
        else
          add_singles<Edge, false>(from, values, count, weights, row, column);
      }
  }

 private:
  static constexpr int kAllVectors = kValueWidth / kLanes;
  static constexpr int kRows = Queries <= 4 ? Queries : kManyRegisters ? 8 : 4;
  static constexpr int kWanted = kManyRegisters ? (kRows > 4 ? 2 : kRows > 2 ? 4 : 8) : (kRows > 2 ? 2 : kRows > 1 ? 4 : 8);
  static constexpr int kColumns = kAllVectors % kWanted == 0 ? kWanted : kAllVectors % 4 == 0 && kWanted > 4 ? 4
                                  : kAllVectors % 2 == 0 ? 2 : 1;

  static constexpr int kLineColumns = std::max(1, 64 / (kLanes * int{sizeof(Number)}));  // vectors in a cache line

  /// A block of sums, while it is in registers; rows past the last query repeat it and are not stored.
  struct Sums {
    Vec at[kRows][kColumns];

    KV_INLINE void load_from(const float (*sum)[kValueWidth], int row, int column) {
      for (int r = 0; r < kRows; ++r)
        for (int c = 0; c < kColumns; ++c) at[r][c] = load(sum[std::min(row + r, Queries - 1)] + (column + c) * kLanes);
    }
    KV_INLINE void store_to(float (*sum)[kValueWidth], int row, int column) const {
      for (int r = 0; r < kRows && row + r < Queries; ++r)
        for (int c = 0; c < kColumns; ++c) store(sum[row + r] + (column + c) * kLanes, at[r][c]);
    }
  };

  /// `later`: the values of a later tile. It is asked for line by line in order of its addresses, as that of keys is.
  template <bool Edge, bool Ahead>
  KV_NOINLINE void add_singles(const Number* values, const Number* later, int count, const Scores& weights, int row,
                               int column) {
    constexpr int kLines = std::max(1, kColumns / kLineColumns), kLine = 64 / int{sizeof(Number)};
    Sums sums;
    sums.load_from(sum_, row, column);
    const float* weight = reinterpret_cast<const float*>(weights);
    later += column / kLineColumns * kTile * kLine;
    for (int first = 0; first < count; first += kVectorKeys, weight += kLanes) {
      KV_UNROLL(4)
      for (int k = 0; k < kVectorKeys; ++k, values += kValueWidth) {
        if (Edge && first + k == count) break;
        if constexpr (kAsStored && Ahead)
          for (int line = 0; line < kLines; ++line, later += kLine) prefetch(later);
        Vec value[kColumns];
        load_values(values, value);
        for (int r = 0; r < kRows; ++r) {
          const int query = std::min(row + r, Queries - 1);
          const Vec w = splat(weight[query / kVectorQueries * kScores * kLanes + query % kVectorQueries * kVectorKeys + k]);
          for (int c = 0; c < kColumns; ++c) sums.at[r][c] += value[c] * w;
        }
      }
    }
    sums.store_to(sum_, row, column);
  }

  static KV_INLINE void load_values(const Number* from, Vec (&to)[kColumns]) {
    if constexpr (kPairs) {
      for (int c = 0; c < kColumns; c += 2) {
        const Bits pairs = load<Bits>(from + c * kLanes);
        to[c] = even(pairs);
        to[c + 1] = odd(pairs);
      }
    } else {
      for (int c = 0; c < kColumns; ++c) to[c] = kRows > 1 ? keep(load(from + c * kLanes)) : load(from + c * kLanes);
    }
  }

  using Paired = uint32_t[kVectors][kDots ? kScores / 2 : 1][kLanes];

  // Two keys at once: those in the same lane of two vectors of scores.
  template <bool Edge>
  static KV_INLINE void pair_weights(int count, const Scores& weights, Paired& paired) {
    const int vectors = (count + kVectorKeys - 1) / kVectorKeys;
    for (int v = 0; v < kVectors; ++v)
      for (int i = 0; i < vectors; i += 2)
        store(paired[v][i / 2], to_pairs(weights[v * kScores + i], !Edge || i + 1 < vectors ? weights[v * kScores + i + 1] : Vec{}));
  }

  template <bool Edge>
  KV_NOINLINE void add_pairs(const Number* values, int count, const Paired& paired, int row, int column) {
    Sums sums;
    sums.load_from(sum_, row, column);
    for (int first = 0; first < count; first += 2 * kVectorKeys)
      for (int k = 0; k < kVectorKeys; ++k) {
        if (Edge && first + k >= count) break;
        const Number* low = values + (first + k) * kValueWidth;
        const Number* high = Edge && first + k + kVectorKeys >= count ? low : low + kVectorKeys * kValueWidth;  // then its weight is 0
        for (int c = 0; c < kColumns; c += 2) {
          prefetch(low + kTile * kValueWidth + c * kLanes);
          prefetch(high + kTile * kValueWidth + c * kLanes);
          const Bits a = load<Bits>(low + c * kLanes), b = load<Bits>(high + c * kLanes);
          const Bits evens = (a & splat(0xffffu)) | (b << 16), odds = (a >> 16) | (b & splat(0xffff0000u));
          for (int r = 0; r < kRows; ++r) {
            const int query = std::min(row + r, Queries - 1);
            const Bits w = splat(paired[query / kVectorQueries][first / (2 * kVectorKeys)][query % kVectorQueries * kVectorKeys + k]);
            sums.at[r][c] = dot_pairs(evens, w, sums.at[r][c]);
            sums.at[r][c + 1] = dot_pairs(odds, w, sums.at[r][c + 1]);
          }
        }
      }
    sums.store_to(sum_, row, column);
  }

  alignas(64) float sum_[Queries][kValueWidth];
};

}  // namespace kv
