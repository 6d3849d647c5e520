// Written by kvgen from mistral.kv and yours to keep: kvgen claims no right to it. Edit mistral.kv.
// kvgen: mistral.kv source 0d21d37929f3 body a9ea464dc536 codegen 1
// A few queries of one kv head: decoding, and short verify windows.
//
// Keys stay as they lie. A vector holds kVectorQueries queries, kVectorKeys lanes each; as many dwords of a key, repeated for each
// query, meet those of every query, and the sums of kVectorKeys keys fold into one vector of scores.
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
  using Scores = typename ValueSums<Policy, Queries>::Scores;
  using Numbers::kKeyDim, Numbers::kValueDim, Numbers::kPairs, Numbers::kAsStored, Numbers::kDots, Numbers::kPerDword;
  using Numbers::kKeyWidth, Numbers::kValueWidth, Numbers::kTile, Numbers::prefetch;
  static constexpr int kGroup = kGroupOf<Policy>;

 public:
  static constexpr int kVectors = ValueSums<Policy, Queries>::kVectors;
  static constexpr int kStepNumbers = kVectorKeys * kPerDword, kSteps = kKeyWidth / kStepNumbers;  // of a key

  /// Sets `count` queries, the first at position `first`: token by token, the kGroup heads of each.
  KV_NOINLINE void start(const Job<Policy>& job, int64_t row, int64_t head, int64_t first, int count) {
    first_ = first;
    last_ = first + (count - 1) / kGroup;
    for (int i = 0; i < kVectors * kVectorQueries; ++i) {
      if (i < count)
        pack(job, row, head * kGroup + i % kGroup, first - job.starts[row] + i / kGroup, i);
      else
        pack_numbers(std::array<float, kKeyWidth>{}.data(), i);
      position_[i / kVectorQueries][i % kVectorQueries] = first + std::min(i, count - 1) / kGroup;
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
  float maximum(int query) const { return maximum_[query / kVectorQueries][lane_of(query)]; }
  float total(int query) const { return query_sum(total_[query / kVectorQueries])[lane_of(query)]; }

 private:
  bool all_see(const Span<Policy>& tile) const { return tile.first >= tile.first_seen(last_) && tile.end <= first_ + 1; }

  static constexpr int kScores = ValueSums<Policy, Queries>::kScores;
  static constexpr int kPasses = (kVectors + 3) / 4;                             // over a key, each with up to four vectors,
  static constexpr int kEach = kVectors / kPasses, kWider = kVectors % kPasses;  // as even as can be
  static constexpr int kForms = kPairs && !kDots ? 2 : 1;  // pairs without a dot product are met as evens and odds

  /// Keys that meet so many vectors of queries at once: there are enough sums for none to wait for another.
  static constexpr int keys_at_once(int vectors) {
    const int most = (kManyRegisters ? 16 : 8) / vectors;
    return most >= 16 ? 16 : most >= 8 ? 8 : most >= 4 ? 4 : 2;
  }

  /// The first lane of a query in its vector.
  static constexpr int lane_of(int query) { return query % kVectorQueries * kVectorKeys; }

  KV_INLINE void pack(const Job<Policy>& job, int64_t row, int64_t head, int64_t column, int query) {
    if (kAsStored && !job.query_is_float)
      return pack_stored(static_cast<const Element*>(job.query) + query_offset(job, row, head, column), query);
    alignas(64) float numbers[kKeyWidth];
    load_query(job, row, head, column, numbers, kKeyWidth);
    pack_numbers(numbers, query);
  }

  /// One query's lanes of the query vectors, from numbers as they are stored.
  KV_INLINE void pack_stored(const Element* query, int index) {
    for (int step = 0; step < kSteps; ++step) {
      const PartBits numbers = load<PartBits>(query + step * kStepNumbers);
      if constexpr (kForms == 2) {
        store(lanes(step, index, 0), numbers << 16);
        store(lanes(step, index, 1), numbers & 0xffff0000u);
      } else {
        store(lanes(step, index, 0), numbers);
      }
    }
  }

  KV_NOINLINE void pack_numbers(const float* numbers, int index) {
    for (int step = 0; step < kSteps; ++step)
      for (int i = 0; i < kVectorKeys; ++i, numbers += kPerDword) {
        if constexpr (kDots) {
          BFloat16 pair[2];
          from_float(numbers[0], pair[0]);
          from_float(numbers[1], pair[1]);
          lanes(step, index, 0)[i] = bit_cast<uint32_t>(pair);
        } else {
          for (int form = 0; form < kForms; ++form) lanes(step, index, form)[i] = bit_cast<uint32_t>(numbers[form]);
        }
      }
  }

  KV_INLINE uint32_t* lanes(int step, int query, int form) { return query_[step][query / kVectorQueries][form] + lane_of(query); }

  /// One of the forms of a key's dwords, as queries have them too.
  static KV_INLINE Bits form_of(Bits key, int form) {
    if constexpr (kForms == 2) return form == 0 ? bit_cast<Bits>(even(key)) : bit_cast<Bits>(odd(key));
    return key;
  }

  static KV_INLINE Vec multiply_add(Bits key, Bits query, Vec sum) {
    if constexpr (kDots) return dot_pairs(key, query, sum);
    return bit_cast<Vec>(key) * bit_cast<Vec>(query) + sum;
  }

  /// Products of the query vectors [start, start + Vectors) with the keys of a tile; past its last key they are anything.
  template <int Vectors, bool Edge>
  KV_NOINLINE void score(const Number* tile, int count, int start, Scores& scores) const {
    constexpr int kKeys = keys_at_once(Vectors), kTogether = std::max(kKeys, kVectorKeys);
    constexpr int kFolded = std::min(kKeys, kVectorKeys);  // keys of a part: as many as there are at once
    for (int first = 0; first < count; first += kTogether) {
      Vec parts[Vectors][kTogether / kFolded];
      if constexpr (Edge) std::memset(parts, 0, sizeof parts);
      const int end = Edge ? std::min(first + kTogether, count) : first + kTogether;
      KV_UNROLL(1)
      for (int key = first; key < end; key += kKeys) {
        Vec sums[Vectors][kKeys] = {};
        multiply_keys<Vectors, kKeys, Edge>(tile, count, key, start, sums);
        for (int v = 0; v < Vectors; ++v)
          for (int k = 0; k < kKeys; k += kFolded) parts[v][(key - first + k) / kFolded] = fold_all<1, kFolded>(sums[v] + k);
      }
      for (int v = 0; v < Vectors; ++v)
        for (int k = 0; k < kTogether; k += kVectorKeys)
          scores[(start + v) * kScores + (first + k) / kVectorKeys] = fold_all<kFolded, kVectorKeys / kFolded>(parts[v] + k / kFolded);
    }
  }

  /// Adds the products of Keys keys, from `key` on, and Vectors query vectors; all lanes of a query's part of a sum are to be added.
  template <int Vectors, int Keys, bool Edge>
  KV_INLINE void multiply_keys(const Number* tile, int count, int key, int start, Vec (&sums)[Vectors][Keys]) const {
    const Number* keys[Keys];
    for (int k = 0; k < Keys; ++k) keys[k] = tile + (Edge ? std::min(key + k, count - 1) : key + k) * kKeyWidth;
    const Number* later = tile + (key + kTile) * kKeyWidth;
    constexpr int kInLine = 16 / kVectorKeys;  // steps in a cache line, if they fit
    constexpr int kLine = kSteps % kInLine == 0 ? kInLine : kSteps % 2 == 0 ? 2 : 1;
    constexpr int kLines = std::max(Keys, 4);  // asked for at once, in order of their addresses, by the first pass over the keys
    const bool ahead = kAsStored && !Edge && start == 0;
    for (int line = 0; line < kSteps; line += kLine) {
      if (ahead && line / kLine * Keys % kLines == 0)
        for (int i = 0; i < kLines; ++i) prefetch(later + (line * Keys + i * kLine) * kStepNumbers);
      KV_UNROLL(4)
      for (int step = line; step < line + kLine; ++step)
        for (int form = 0; form < kForms; ++form) {
          Bits queries[Vectors];
          for (int v = 0; v < Vectors; ++v) queries[v] = keep(load<Bits>(query_[step][start + v][form]));
          for (int k = 0; k < Keys; ++k) {
            const Bits numbers = form_of(load_repeated(keys[k] + step * kStepNumbers), form);
            for (int v = 0; v < Vectors; ++v) sums[v][k] = multiply_add(numbers, queries[v], sums[v][k]);
          }
        }
    }
  }

  /// All scores of a tile.
  template <bool Edge>
  KV_INLINE void score_tile(const Number* tile, int count, Scores& scores) const {
    score<kEach + (kWider > 0), Edge>(tile, count, 0, scores);
    if constexpr (kWider > 1)
      for (int pass = 1; pass < kWider; ++pass) score<kEach + 1, Edge>(tile, count, pass * (kEach + 1), scores);
    for (int pass = std::max(kWider, 1); pass < kPasses; ++pass)
      score<kEach, Edge>(tile, count, kWider + pass * kEach, scores);
  }

  template <bool Edge>
  KV_INLINE void attend_tile(const Span<Policy>& tile, const Scaling<Policy>& scaling, float* wide) {
    const int count = Edge ? static_cast<int>(tile.count()) : kTile;
    alignas(64) Scores scores;
    score_tile<Edge>(as_numbers<kKeyDim, kKeyWidth>(tile.keys, count, wide), count, scores);
    const int vectors = Edge ? (count + kVectorKeys - 1) / kVectorKeys : kScores;
    for (int v = 0; v < kVectors; ++v)
      for (int i = 0; i < vectors; ++i) scores[v * kScores + i] = scaling(scores[v * kScores + i]);
    if (Edge && !all_see(tile)) hide(tile, vectors, scores);
    if (Edge && count % kVectorKeys != 0) hide_past_end(count, scores);
    weigh_tile(vectors, scores);
    sums_.template add<Edge>(as_numbers<kValueDim, kValueWidth>(tile.values, count, wide), count, scores);
  }

  /// Which key of its vector each lane of a score is for.
  static KV_INLINE Ints lane_keys() {
    Ints keys;
    for (int lane = 0; lane < kLanes; ++lane) keys[lane] = lane % kVectorKeys;
    return keys;
  }

  /// Scores of keys that a query does not see become -infinity.
  KV_NOINLINE void hide(const Span<Policy>& tile, int vectors, Scores& scores) const {
    for (int v = 0; v < kVectors; ++v) {
      Ints from, to, key = lane_keys();
      for (int lane = 0; lane < kLanes; ++lane) {
        const int64_t position = position_[v][lane / kVectorKeys];
        from[lane] = static_cast<int32_t>(std::max<int64_t>(tile.first_seen(position) - tile.first, 0));
        to[lane] = static_cast<int32_t>(std::min(position + 1 - tile.first, tile.count()));
      }
      for (int i = 0; i < vectors; ++i, key += kVectorKeys)
        scores[v * kScores + i] = select((key >= from) & (key < to), scores[v * kScores + i], splat(-INFINITY));
    }
  }

  /// So do those in the last vector's lanes past the tile.
  static KV_INLINE void hide_past_end(int count, Scores& scores) {
    const Ints in_tile = lane_keys() < splat(count % kVectorKeys);
    for (int i = count / kVectorKeys; i < kVectors * kScores; i += kScores) scores[i] = select(in_tile, scores[i], splat(-INFINITY));
  }

  /// Scores become weights, relative to the largest score so far.
  KV_NOINLINE void weigh_tile(int vectors, Scores& scores) {
    for (int v = 0; v < kVectors; ++v) {
      Vec top = scores[v * kScores];
      for (int i = 1; i < vectors; ++i) top = kv::maximum(top, scores[v * kScores + i]);
      if (any(top > maximum_[v])) raise_maximum(v, query_maximum(top));
      for (int i = vectors; i < kScores; ++i) scores[v * kScores + i] = splat(-INFINITY);
    }
    constexpr int kAll = kVectors * kScores, kAtOnce = kAll % 4 == 0 ? 4 : 2;  // of any queries
    for (int first = 0; first < kAll; first += kAtOnce) {
      Vec weights[kAtOnce];
      for (int i = 0; i < kAtOnce; ++i) weights[i] = scores[first + i] - maximum_[(first + i) / kScores];
      exp2(weights);
      for (int i = 0; i < kAtOnce; ++i) scores[first + i] = weights[i];
    }
    for (int v = 0; v < kVectors; ++v)
      for (int i = 0; i < kScores; ++i) total_[v] += scores[v * kScores + i];
  }

  /// What was summed before follows the largest score.
  KV_NOINLINE void raise_maximum(int vector, Vec top) {
    const Vec now = kv::maximum(maximum_[vector], top), shrink = exp2(maximum_[vector] - now);
    const bool summed = any(maximum_[vector] > splat(kNoMaximum));
    total_[vector] *= shrink;
    maximum_[vector] = now;
    if (!summed) return;
    for (int q = vector * kVectorQueries; q < std::min(Queries, (vector + 1) * kVectorQueries); ++q)
      sums_.multiply(q, shrink[lane_of(q)]);
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
  int64_t position_[kVectors][kVectorQueries];
  int64_t first_, last_;  // positions of the queries
};

}  // namespace kv
