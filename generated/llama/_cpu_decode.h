// Written by kvgen from llama.kv and yours to keep: kvgen claims no right to it. Edit llama.kv.
// kvgen: llama.kv source 8972495ac203 body 1f13b1fa909d codegen 1
// A few queries of one kv head: decoding, and short verify windows.
//
// Keys stay as they lie. A vector holds kQuads queries, a quad of lanes each; four dwords of a key, repeated in every quad,
// meet four dwords of each query, and four keys' sums fold into one vector of scores: lane 4 * query + key.
#pragma once

#include "_cpu_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kv {

template <class Policy, int Queries>
class Decode : DecodeNumbers<Policy> {
  using Numbers = DecodeNumbers<Policy>;
  using typename Numbers::Element, typename Numbers::Number;
  using Numbers::kKeyDim, Numbers::kValueDim, Numbers::kPairs, Numbers::kAsStored, Numbers::kDots, Numbers::kPerDword;
  using Numbers::kKeyWidth, Numbers::kValueWidth, Numbers::kTile, Numbers::prefetch;
  static constexpr int kGroup = kGroupOf<Policy>;

 public:
  static constexpr int kVectors = ValueSums<Policy, Queries>::kVectors;
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
    sums_.clear();
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

  const float* sum(int query) const { return sums_.of(query); }
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
  static_assert(kVectors % kPass == 0 && kTile % kKeys == 0 && kScores % kWeighed == 0, "whole passes");

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

  static KV_INLINE Vec multiply_add(Bits key, const Bits* query, Vec sum) {
    if constexpr (kDots) return dot_pairs(key, query[0], sum);
    if constexpr (kPairs) return odd(key) * bit_cast<Vec>(query[1]) + (even(key) * bit_cast<Vec>(query[0]) + sum);
    return bit_cast<Vec>(key) * bit_cast<Vec>(query[0]) + sum;
  }

  /// Scores of kKeys keys with the query vectors [Start, Start + kPass).
  template <bool Ahead>
  KV_NOINLINE void score(const Number* const* keys, int start, Vec (*scores)[kVectors]) const {
    Vec sums[kPass][kKeys] = {};
    constexpr int kLine = kSteps % 4 == 0 ? 4 : kSteps % 2 == 0 ? 2 : 1;  // steps between prefetches: a cache line, if it fits
    for (int line = 0; line < kSteps; line += kLine) {
      if constexpr (Ahead)  // line by line in order of their addresses: that sets off the processor's own prefetching
        for (int k = 0; k < kKeys; ++k) prefetch(keys[0] + kTile * kKeyWidth + (line * kKeys + k * kLine) * 4 * kPerDword);
      KV_UNROLL(4)
      for (int step = line; step < line + kLine; ++step) {
        Bits queries[kPass][kForms];
        for (int v = 0; v < kPass; ++v)
          for (int form = 0; form < kForms; ++form) queries[v][form] = keep(load<Bits>(query_[step][start + v][form]));
        for (int k = 0; k < kKeys; ++k) {
          const Bits key = load_quads(keys[k] + step * 4 * kPerDword);
          for (int v = 0; v < kPass; ++v) sums[v][k] = multiply_add(key, queries[v], sums[v][k]);
        }
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
    weigh_tile(groups, scores);
    const Number* values = as_numbers<kValueDim, kValueWidth>(tile.values, count, wide);
    sums_.template add<Edge>(values, count, scores);
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
  KV_NOINLINE void weigh_tile(int groups, Vec (*scores)[kVectors]) {
    for (; groups % kWeighed != 0; ++groups)
      for (int v = 0; v < kVectors; ++v) scores[groups][v] = splat(-INFINITY);
    for (int v = 0; v < kVectors; ++v) {
      Vec top = scores[0][v];
      for (int i = 1; i < groups; ++i) top = kv::maximum(top, scores[i][v]);
      const Vec before = maximum_[v], now = kv::maximum(before, quad_maximum(top));
      if (any(now > before)) {
        const Vec shrink = exp2(before - now);
        total_[v] *= shrink;
        maximum_[v] = now;
        for (int q = v * kQuads; q < std::min(Queries, (v + 1) * kQuads); ++q) sums_.multiply(q, shrink[q % kQuads * 4]);
      }
      for (int group = 0; group < groups; group += kWeighed) {
        Vec weights[kWeighed];
        for (int i = 0; i < kWeighed; ++i) weights[i] = scores[group + i][v];
        weigh(weights, now, total_[v]);
        for (int i = 0; i < kWeighed; ++i) scores[group + i][v] = weights[i];
      }
    }
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
  ValueSums<Policy, Queries> sums_;
  Vec maximum_[kVectors], total_[kVectors];
  int64_t position_[kVectors][kQuads];
  int64_t first_, last_;  // positions of the queries
};

}  // namespace kv
