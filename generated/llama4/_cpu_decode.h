// Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
// kvgen: llama4.kv source fd738860da89 body dcb12462704e codegen 1
// A few queries of one kv head: decoding, and short verify windows.
//
// Keys stay as they lie. A vector holds kQuads queries, a quad of lanes each; four dwords of a key, repeated in every quad,
// meet four dwords of each query, and four keys' sums fold into one vector of scores: lane 4 * query + key.
#pragma once

#include "_cpu_softmax.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kv {

constexpr int kTile = 64;          // keys whose scores are held at once
constexpr int kPrefetchKeys = 64;  // how far ahead memory is asked for

/// Numbers are computed with as they are stored, two bfloat16 a dword; others are first widened to float, a tile at a time.
template <class Policy>
struct DecodeNumbers {
  using Element = typename Policy::Element;
  static constexpr int kKeyDim = Policy::kKeyDim, kValueDim = Policy::kValueDim;
  static constexpr bool kPairs = std::is_same_v<Element, BFloat16> && kKeyDim % 8 == 0 && kValueDim % (2 * kLanes) == 0;
  static constexpr bool kAsStored =
      kPairs || (std::is_same_v<Element, float> && kKeyDim % 4 == 0 && kValueDim % kLanes == 0);
  static constexpr bool kDots = kPairs && kHasDot;
  static constexpr int kPerDword = kPairs ? 2 : 1;
  static constexpr int kKeyWidth = kAsStored ? kKeyDim : round_up(kKeyDim, 4);
  static constexpr int kValueWidth = kAsStored ? kValueDim : round_up(kValueDim, kLanes);
  static constexpr int kWideFloats = kAsStored ? 1 : kTile * std::max(kKeyWidth, kValueWidth);

  using Number = std::conditional_t<kPairs, BFloat16, float>;
};

template <class Policy, int Queries>
class Decode : DecodeNumbers<Policy> {
  using Numbers = DecodeNumbers<Policy>;
  using typename Numbers::Element, typename Numbers::Number;
  using Numbers::kKeyDim, Numbers::kValueDim, Numbers::kPairs, Numbers::kAsStored, Numbers::kDots, Numbers::kPerDword;
  using Numbers::kKeyWidth, Numbers::kValueWidth;
  static constexpr int kGroup = kGroupOf<Policy>;

 public:
  static constexpr int kVectors = (Queries + kQuads - 1) / kQuads;  // of queries
  static constexpr int kSteps = kKeyWidth / (4 * kPerDword);        // quads of dwords in a key

  /// Sets `count` queries, the first at position `first`: token by token, the kGroup heads of each.
  KV_NOINLINE void start(const Job<Policy>& job, int64_t row, int64_t head, int64_t first, int count) {
    first_ = first;
    last_ = first + (count - 1) / kGroup;
    for (int i = 0; i < kVectors * kQuads; ++i) {
      if (i < count)
        pack(job, row, head * kGroup + i % kGroup, first - job.starts[row] + i / kGroup, i);
      else
        pack_numbers(std::array<float, kKeyWidth>{}.data(), i);
      position_[i / kQuads][i % kQuads] = first + std::min(i, count - 1) / kGroup;
    }
    for (int v = 0; v < kVectors; ++v) {
      maximum_[v] = splat(kNoMaximum);
      total_[v] = Vec{};
    }
    std::memset(sum_, 0, sizeof sum_);
  }

  KV_NOINLINE void attend(const Span<Policy>& span, const Scaling<Policy>& scaling, float* wide) {
    for (int64_t from = span.first; from < span.end; from += kTile) {
      const Span<Policy> tile = span.part(from, std::min(from + kTile, span.end));
      if (tile.count() == kTile && all_see(tile))
        attend_tile<false>(tile, scaling, wide);
      else
        attend_tile<true>(tile, scaling, wide);
    }
  }

  const float* sum(int query) const { return sum_[query]; }
  float maximum(int query) const { return maximum_[query / kQuads][query % kQuads * 4]; }
  float total(int query) const { return quad_sum(total_[query / kQuads])[query % kQuads * 4]; }

 private:
  bool all_see(const Span<Policy>& tile) const { return tile.first >= tile.first_seen(last_) && tile.end <= first_ + 1; }

  static constexpr int kScores = kTile / 4;
  static constexpr int kMostPass = kManyRegisters ? 4 : 3;
  static constexpr int kPass =  // query vectors that meet a key at once
      kVectors <= kMostPass ? kVectors : kVectors % 2 == 0 ? 2 : 1;
  static constexpr int kKeys = std::max(4, (kManyRegisters ? 16 : 8) / kPass / 4 * 4);  // keys in flight
  static constexpr int kForms = kPairs && !kDots ? 2 : 1;  // pairs without a dot product are met as evens and odds
  static_assert(kVectors % kPass == 0 && kTile % kKeys == 0, "whole passes");

  KV_INLINE void pack(const Job<Policy>& job, int64_t row, int64_t head, int64_t column, int query) {
    if (kAsStored && !job.query_is_float)
      return pack_stored(static_cast<const Element*>(job.query) + query_offset(job, row, head, column), query);
    alignas(64) float numbers[kKeyWidth];
    load_query(job, row, head, column, numbers, kKeyWidth);
    pack_numbers(numbers, query);
  }

  /// One query's lanes of the query vectors, from numbers as they are stored.
  KV_INLINE void pack_stored(const Element* query, int index) {
    const int vector = index / kQuads, lane = index % kQuads * 4;
    for (int step = 0; step < kSteps; ++step) {
      const QuadBits quad = load<QuadBits>(query + step * 4 * kPerDword);
      if constexpr (kForms == 2) {
        store(lane_of(step, vector, 0) + lane, quad << 16);
        store(lane_of(step, vector, 1) + lane, quad & 0xffff0000u);
      } else {
        store(lane_of(step, vector, 0) + lane, quad);
      }
    }
  }

  KV_NOINLINE void pack_numbers(const float* numbers, int index) {
    const int vector = index / kQuads, lane = index % kQuads * 4;
    for (int step = 0; step < kSteps; ++step)
      for (int i = 0; i < 4; ++i) {
        const float* number = numbers + (step * 4 + i) * kPerDword;
        if constexpr (kDots) {
          BFloat16 pair[2];
          from_float(number[0], pair[0]);
          from_float(number[1], pair[1]);
          lane_of(step, vector, 0)[lane + i] = bit_cast<uint32_t>(pair);
        } else {
          for (int form = 0; form < kForms; ++form) lane_of(step, vector, form)[lane + i] = bit_cast<uint32_t>(number[form]);
        }
      }
  }

  KV_INLINE uint32_t* lane_of(int step, int vector, int form) { return query_[step][vector][form]; }

  static KV_INLINE Vec multiply_add(Bits key, const uint32_t (*query)[kLanes], Vec sum) {
    if constexpr (kDots) return dot_pairs(key, load<Bits>(query[0]), sum);
    if constexpr (kPairs) return odd(key) * load(query[1]) + (even(key) * load(query[0]) + sum);
    return bit_cast<Vec>(key) * load(query[0]) + sum;
  }

  /// Scores of kKeys keys with the query vectors [Start, Start + kPass).
  template <bool Ahead>
  KV_NOINLINE void score(const Number* const* keys, int start, Vec (*scores)[kVectors]) const {
    Vec sums[kPass][kKeys] = {};
    constexpr int kLine = kSteps % 4 == 0 ? 4 : kSteps % 2 == 0 ? 2 : 1;  // steps between prefetches: a cache line, if it fits
    for (int line = 0; line < kSteps; line += kLine) {
      if constexpr (Ahead)
        for (int k = 0; k < kKeys; ++k) prefetch(keys[k] + line * 4 * kPerDword + kPrefetchKeys * kKeyWidth);
      KV_UNROLL(4)
      for (int step = line; step < line + kLine; ++step)
        for (int k = 0; k < kKeys; ++k) {
          const Bits key = load_quads(keys[k] + step * 4 * kPerDword);
          for (int v = 0; v < kPass; ++v) sums[v][k] = multiply_add(key, query_[step][start + v], sums[v][k]);
        }
    }
    for (int k = 0; k < kKeys; k += 4)
      for (int v = 0; v < kPass; ++v) scores[k / 4][start + v] = sum_quads(sums[v] + k);
  }

  template <bool Edge>
  KV_INLINE void attend_tile(const Span<Policy>& tile, const Scaling<Policy>& scaling, float* wide) {
    const int count = Edge ? static_cast<int>(tile.count()) : kTile;
    alignas(64) Vec scores[kScores][kVectors];
    const Number* keys = as_numbers<kKeyDim, kKeyWidth>(tile.keys, count, wide);
    const int groups = Edge ? (count + 3) / 4 : kScores;
    for (int key = 0; key < groups * 4; key += kKeys) {
      const Number* at[kKeys];
      for (int k = 0; k < kKeys; ++k) at[k] = keys + (Edge ? std::min(key + k, count - 1) : key + k) * kKeyWidth;
      for (int start = 0; start < kVectors; start += kPass)
        start == 0 ? score<kAsStored>(at, start, scores + key / 4) : score<false>(at, start, scores + key / 4);
    }
    for (int i = 0; i < groups; ++i)
      for (int v = 0; v < kVectors; ++v) scores[i][v] = scaling(scores[i][v]);
    if (Edge && (count % 4 != 0 || !all_see(tile))) hide(tile, groups, scores);
    weigh(groups, scores);
    const Number* values = as_numbers<kValueDim, kValueWidth>(tile.values, count, wide);
    add_values<Edge>(values, count, scores);
  }

  /// Scores of keys that a query does not see, and of lanes past the tile, become -infinity.
  KV_NOINLINE void hide(const Span<Policy>& tile, int groups, Vec (*scores)[kVectors]) const {
    for (int v = 0; v < kVectors; ++v) {
      Ints from, to;
      for (int lane = 0; lane < kLanes; ++lane) {
        const int64_t position = position_[v][lane / 4];
        from[lane] = static_cast<int32_t>(std::max<int64_t>(tile.first_seen(position) - tile.first, 0));
        to[lane] = static_cast<int32_t>(std::min(position + 1 - tile.first, tile.count()));
      }
      Ints key;
      for (int lane = 0; lane < kLanes; ++lane) key[lane] = lane % 4;
      for (int i = 0; i < groups; ++i, key += 4)
        scores[i][v] = select((key >= from) & (key < to), scores[i][v], splat(-INFINITY));
    }
  }

  /// Scores become weights, relative to the largest score so far; what was summed before follows it.
  KV_NOINLINE void weigh(int groups, Vec (*scores)[kVectors]) {
    for (int v = 0; v < kVectors; ++v) {
      Vec top = scores[0][v];
      for (int i = 1; i < groups; ++i) top = kv::maximum(top, scores[i][v]);
      const Vec before = maximum_[v], now = kv::maximum(before, quad_maximum(top));
      if (any(now > before)) {
        const Vec shrink = exp2(before - now);
        total_[v] *= shrink;
        maximum_[v] = now;
        for (int q = v * kQuads; q < std::min(Queries, (v + 1) * kQuads); ++q)
          for (int d = 0; d < kValueWidth; d += kLanes)
            store(sum_[q] + d, load(sum_[q] + d) * splat(shrink[q % kQuads * 4]));
      }
      for (int i = 0; i < groups; ++i) {
        scores[i][v] = exp2(scores[i][v] - now);
        total_[v] += scores[i][v];
      }
    }
  }

  // Values: a block of query rows and value vectors is summed over the whole tile in registers.
  static constexpr int kAllVectors = kValueWidth / kLanes;
  static constexpr int kRows = Queries <= 4 ? Queries : kManyRegisters ? 8 : 4;
  static constexpr int kWanted = kManyRegisters ? (kRows > 4 ? 2 : kRows > 2 ? 4 : 8) : (kRows > 2 ? 2 : kRows > 1 ? 4 : 8);
  static constexpr int kColumns = kAllVectors % kWanted == 0 ? kWanted : kAllVectors % 4 == 0 && kWanted > 4 ? 4
                                  : kAllVectors % 2 == 0 ? 2 : 1;

  static constexpr int kLineColumns = std::max(1, 64 / (kLanes * int{sizeof(Number)}));  // vectors in a cache line

  template <bool Edge>
  KV_INLINE void add_values(const Number* values, int count, const Vec (*weights)[kVectors]) {
    alignas(64) uint32_t paired[kDots ? kScores / 2 : 1][kVectors][kLanes];
    if constexpr (kDots) pair_weights<Edge>(count, weights, paired);
    for (int row = 0; row < Queries; row += kRows)
      for (int column = 0; column < kAllVectors; column += kColumns) {
        if constexpr (kDots)
          add_pairs<Edge>(values + column * kLanes, count, paired, row, column);
        else if (row == 0 && column % kLineColumns == 0)
          add_singles<true>(values + column * kLanes, count, weights, row, column);
        else
          add_singles<false>(values + column * kLanes, count, weights, row, column);
      }
  }

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

  template <bool Ahead>
  KV_NOINLINE void add_singles(const Number* values, int count, const Vec (*weights)[kVectors], int row, int column) {
    Sums sums;
    sums.load_from(sum_, row, column);
    const float* weight = reinterpret_cast<const float*>(weights);
    for (int key = 0; key < count; ++key, values += kValueWidth) {
      if constexpr (kAsStored && Ahead)
        for (int c = 0; c < kColumns; c += kLineColumns) prefetch(values + kPrefetchKeys * kValueWidth + c * kLanes);
      Vec value[kColumns];
      if constexpr (kPairs) {
        for (int c = 0; c < kColumns; c += 2) {
          const Bits pairs = load<Bits>(values + c * kLanes);
          value[c] = even(pairs);
          value[c + 1] = odd(pairs);
        }
      } else {
        for (int c = 0; c < kColumns; ++c) value[c] = load(values + c * kLanes);
      }
      const float* of_key = weight + key / 4 * kVectors * kLanes + key % 4;
      for (int r = 0; r < kRows; ++r) {
        const int query = std::min(row + r, Queries - 1);
        const Vec w = splat(of_key[query / kQuads * kLanes + query % kQuads * 4]);
        for (int c = 0; c < kColumns; ++c) sums.at[r][c] += value[c] * w;
      }
    }
    sums.store_to(sum_, row, column);
  }

  // Two keys at once: key k of a group of eight meets key k + 4, whose weights lie in the same lane of the next vector.
  template <bool Edge>
  static KV_INLINE void pair_weights(int count, const Vec (*weights)[kVectors], uint32_t (*paired)[kVectors][kLanes]) {
    const int groups = (count + 3) / 4;
    for (int i = 0; i < groups; i += 2)
      for (int v = 0; v < kVectors; ++v)
        store(paired[i / 2][v], to_pairs(weights[i][v], !Edge || i + 1 < groups ? weights[i + 1][v] : Vec{}));
  }

  template <bool Edge>
  KV_NOINLINE void add_pairs(const Number* values, int count, const uint32_t (*paired)[kVectors][kLanes], int row, int column) {
    Sums sums;
    sums.load_from(sum_, row, column);
    for (int base = 0; base < count; base += 8)
      for (int k = 0; k < 4; ++k) {
        if (Edge && base + k >= count) break;
        const Number* low = values + (base + k) * kValueWidth;
        const Number* high = Edge && base + k + 4 >= count ? low : low + 4 * kValueWidth;  // then its weight is 0
        for (int c = 0; c < kColumns; c += 2) {
          prefetch(low + kPrefetchKeys * kValueWidth + c * kLanes);
          prefetch(high + kPrefetchKeys * kValueWidth + c * kLanes);
          const Bits a = load<Bits>(low + c * kLanes), b = load<Bits>(high + c * kLanes);
          const Bits evens = (a & splat(0xffffu)) | (b << 16), odds = (a >> 16) | (b & splat(0xffff0000u));
          for (int r = 0; r < kRows; ++r) {
            const int query = std::min(row + r, Queries - 1);
            const Bits w = splat(paired[base / 8][query / kQuads][query % kQuads * 4 + k]);
            sums.at[r][c] = dot_pairs(evens, w, sums.at[r][c]);
            sums.at[r][c + 1] = dot_pairs(odds, w, sums.at[r][c + 1]);
          }
        }
      }
    sums.store_to(sum_, row, column);
  }

  /// `count` rows of a plane as they are computed with.
  template <int Dim, int Width, class Stored, class Wide>
  static KV_INLINE const Number* as_numbers(const Stored* plane, int count, Wide* wide) {
    if constexpr (kAsStored) {
      return plane;
    } else {
      for (int i = 0; i < count; ++i) widen(plane + i * Dim, wide + i * Width, Dim, Width);
      return wide;
    }
  }

  alignas(64) uint32_t query_[kSteps][kVectors][kForms][kLanes];
  alignas(64) float sum_[Queries][kValueWidth];
  Vec maximum_[kVectors], total_[kVectors];
  int64_t position_[kVectors][kQuads];
  int64_t first_, last_;  // positions of the queries
};

}  // namespace kv
