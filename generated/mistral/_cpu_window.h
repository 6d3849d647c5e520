// Written by kvgen from mistral.kv and yours to keep: kvgen claims no right to it. Edit mistral.kv.
// kvgen: mistral.kv source 0d21d37929f3 body 76e729b2a4f2 codegen 1
// Many queries of one kv head: prefill, chunks, and verify windows of more queries than a few vectors hold
//
// kBlock queries lie across the lanes, keys go down: a key's number, in all lanes, meets that number of every query. Keys
// and values are prepared once a panel for all blocks.
#pragma once

#include "_cpu_panel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kv {

template <class Policy>
struct Window : WindowNumbers<Policy> {
  using Numbers = WindowNumbers<Policy>;
  using typename Numbers::Element, typename Numbers::Number, typename Numbers::Panel;
  using Numbers::kKeyDim, Numbers::kValueDim, Numbers::kDots, Numbers::kAsStored, Numbers::kEvenOdd, Numbers::kValueWidth;
  static constexpr int kGroup = kGroupOf<Policy>;
  static constexpr int kKeySteps = kDots ? kKeyDim / 2 : kKeyDim;  // dwords of a key
  static constexpr int kBlockVectors = kLanes == 4 && kManyRegisters ? 4 : 2;
  static constexpr int kBlock = kBlockVectors * kLanes;
  static constexpr int kKeysAtOnce = kLanes == 16 ? 8 : kLanes == 8 ? 6 : 4;
  static constexpr int kRowsAtOnce = kLanes == 16 ? 8 : 4;
  static constexpr int kColumnsAtOnce = kLanes == 8 ? 3 : kLanes == 4 && kManyRegisters ? 4 : 2;
  static constexpr int kBlockTile = 8 * kKeysAtOnce;                           // keys whose scores are held at once
  static constexpr int kPanel = 4 * kBlockTile;                               // keys prepared at once
  static constexpr int kChunkTokens = std::max(1, 512 / kGroup);              // of queries that share panels
  static constexpr int kChunkBlocks = (kChunkTokens * kGroup + kBlock - 1) / kBlock;
  static_assert(kBlock % kRowsAtOnce == 0 && kBlockTile % kWeighed == 0, "whole blocks");

  /// kBlock queries and what they have summed so far.
  struct Block {
    alignas(64) uint32_t queries[kKeySteps][kBlock];  // floats, or pairs of bfloat16
    alignas(64) float sum[kBlock][kValueWidth];
    alignas(64) float maximum[kBlock], total[kBlock];
    int64_t position[kBlock];
    int count;
  };

  struct Scratch {
    Block blocks[kChunkBlocks];
    alignas(64) Number keys[kDots || kAsStored ? 1 : kPanel * kKeyDim];
    alignas(64) Number values[kAsStored ? 1 : kPanel * kValueWidth];
    alignas(64) float scores[kBlockTile][kBlock];
    alignas(64) uint32_t pairs[kBlockTile / 2][kBlock];
  };

  /// Queries [index, index + count) of a row and kv head, counted token by token, the kGroup heads of each.
  KV_NOINLINE static void start_block(Block& block, const Job<Policy>& job, int64_t row, int64_t head, int64_t index, int count) {
    block.count = count;
    for (int i = 0; i < kBlock; ++i) {
      const int64_t at = index + std::min(i, count - 1), token = at / kGroup;
      block.position[i] = job.firsts[row] + token;
      alignas(64) float query[kKeyDim];
      load_query(job, row, head * kGroup + at % kGroup, job.firsts[row] + token - job.starts[row], query, kKeyDim);
      for (int step = 0; step < kKeySteps; ++step) {
        if constexpr (kDots) {
          BFloat16 pair[2];
          from_float(query[2 * step], pair[0]);
          from_float(query[2 * step + 1], pair[1]);
          block.queries[step][i] = bit_cast<uint32_t>(pair);
        } else {
          block.queries[step][i] = bit_cast<uint32_t>(query[kEvenOdd ? Numbers::stored_at(step) : step]);
        }
      }
      block.maximum[i] = kNoMaximum;
      block.total[i] = 0.0f;
    }
    std::memset(block.sum, 0, sizeof block.sum);
  }

  static KV_INLINE Vec multiply_add_dword(Vec sum, Bits a, uint32_t b) {
    if constexpr (kDots) return dot_pairs(a, splat(b), sum);
    return bit_cast<Vec>(a) * splat(bit_cast<float>(b)) + sum;
  }

  template <class Number>
  static KV_INLINE uint32_t dword(const Number* numbers, int i) {
    uint32_t bits;
    std::memcpy(&bits, reinterpret_cast<const unsigned char*>(numbers) + 4 * i, 4);
    return bits;
  }

  /// Scores of Keys keys with all queries of the block. `later`: the same keys of the next panel, or null. It is asked for line by
  /// line in order of its addresses: that sets off the processor's own prefetching.
  template <int Keys>
  KV_NOINLINE static void score_block(const Block& block, const Number* keys, const Span<Policy>* later, const Scaling<Policy>& scaling,
                                      float (*scores)[kBlock]) {
    constexpr int kLine = 64 / int{sizeof(Element)}, kLineSteps = kDots ? kLine / 2 : kLine;
    Vec sums[Keys][kBlockVectors] = {};
    for (int line = 0; line < kKeySteps; line += kLineSteps) {
      if (later != nullptr)
        for (int k = 0; k < Keys; ++k) {
          __builtin_prefetch(later->keys + (line / kLineSteps * Keys + k) * kLine, 0, 2);
          __builtin_prefetch(later->values + (line / kLineSteps * Keys + k) * kLine, 0, 2);
        }
      const int end = std::min(line + kLineSteps, kKeySteps);
      KV_UNROLL(4)
      for (int step = line; step < end; ++step) {
        Bits queries[kBlockVectors];
        for (int v = 0; v < kBlockVectors; ++v) queries[v] = keep(load<Bits>(block.queries[step] + v * kLanes));
        for (int k = 0; k < Keys; ++k) {
          const uint32_t number = dword(keys + k * kKeyDim, step);
          for (int v = 0; v < kBlockVectors; ++v) sums[k][v] = multiply_add_dword(sums[k][v], queries[v], number);
        }
      }
    }
    for (int k = 0; k < Keys; ++k)
      for (int v = 0; v < kBlockVectors; ++v) store(scores[k] + v * kLanes, scaling(sums[k][v]));
  }

  /// Scores of keys that a query does not see become -infinity.
  static void hide_in_block(const Block& block, const Span<Policy>& tile, float (*scores)[kBlock]) {
    const int count = static_cast<int>(tile.count());
    for (int v = 0; v < kBlockVectors; ++v) {
      Ints from, to;
      for (int lane = 0; lane < kLanes; ++lane) {
        const int64_t position = block.position[v * kLanes + lane];
        from[lane] = static_cast<int32_t>(std::max<int64_t>(tile.first_seen(position) - tile.first, 0));
        to[lane] = static_cast<int32_t>(std::min<int64_t>(position + 1 - tile.first, count));
      }
      for (int k = 0; k < count; ++k) {
        const Ints key = splat(k);
        store(scores[k] + v * kLanes, select((key >= from) & (key < to), load(scores[k] + v * kLanes), splat(-INFINITY)));
      }
    }
  }

  /// Scores become weights, relative to the largest score so far; what was summed before follows it.
  KV_NOINLINE static void weigh_block(Block& block, int count, Scratch& scratch) {
    for (; count % kWeighed != 0; ++count)
      for (int v = 0; v < kBlockVectors; ++v) store(scratch.scores[count] + v * kLanes, splat(-INFINITY));
    for (int v = 0; v < kBlockVectors; ++v) {
      const int at = v * kLanes;
      const Vec before = load(block.maximum + at);
      Vec now = before;
      for (int k = 0; k < count; ++k) now = maximum(now, load(scratch.scores[k] + at));
      Vec total = load(block.total + at);
      if (any(now > before)) {
        const Vec shrink = exp2(before - now);
        total *= shrink;
        store(block.maximum + at, now);
        for (int i = 0; i < kLanes; ++i)
          if (shrink[i] != 1.0f)
            for (int d = 0; d < kValueWidth; d += kLanes)
              store(block.sum[at + i] + d, load(block.sum[at + i] + d) * splat(shrink[i]));
      }
      for (int k = 0; k < count; k += kWeighed) {
        Vec weights[kWeighed];
        for (int i = 0; i < kWeighed; ++i) weights[i] = load(scratch.scores[k + i] + at);
        weigh(weights, now, total);
        for (int i = 0; i < kWeighed; ++i) {
          if constexpr (!kDots)
            store(scratch.scores[k + i] + at, weights[i]);
          else if (i % 2 == 0)
            store(scratch.pairs[(k + i) / 2] + at, to_pairs(weights[i], weights[i + 1]));
        }
      }
      store(block.total + at, total);
    }
  }

  /// Adds weighted values, kRowsAtOnce queries and Columns vectors of their sums at a time in registers.
  template <int Columns>
  KV_NOINLINE static void add_columns(Block& block, const Number* values, int column, int count, const Scratch& scratch) {
    constexpr int kStep = kDots ? 2 : 1;  // keys a dword
    for (int row = 0; row < kBlock; row += kRowsAtOnce) {
      Vec sums[kRowsAtOnce][Columns];
      for (int r = 0; r < kRowsAtOnce; ++r)
        for (int c = 0; c < Columns; ++c) sums[r][c] = load(block.sum[row + r] + (column + c) * kLanes);
      const Number* value = values + column * kLanes * kStep;
      KV_UNROLL(2)
      for (int k = 0; k < count; k += kStep) {
        Bits numbers[Columns];
        for (int c = 0; c < Columns; ++c) numbers[c] = keep(load<Bits>(value + c * kLanes * kStep));
        for (int r = 0; r < kRowsAtOnce; ++r) {
          const uint32_t w = kDots ? scratch.pairs[k / 2][row + r] : bit_cast<uint32_t>(scratch.scores[k][row + r]);
          for (int c = 0; c < Columns; ++c) sums[r][c] = multiply_add_dword(sums[r][c], numbers[c], w);
        }
        value += kValueWidth * kStep;
      }
      for (int r = 0; r < kRowsAtOnce; ++r)
        for (int c = 0; c < Columns; ++c) store(block.sum[row + r] + (column + c) * kLanes, sums[r][c]);
    }
  }

  template <bool Edge>
  static KV_INLINE void attend_block_tile(Block& block, const Span<Policy>& tile, const Number* keys, const Number* values, bool ahead,
                                          const Scaling<Policy>& scaling, Scratch& scratch) {
    const int count = Edge ? static_cast<int>(tile.count()) : kBlockTile;
    const auto score = [&](auto keys_at_once, int key) {
      const Span<Policy> later = tile.part(tile.first + kPanel + key, tile.end);
      score_block<keys_at_once>(block, keys + key * kKeyDim, ahead ? &later : nullptr, scaling, scratch.scores + key);
    };
    int key = 0;
    for (; key + kKeysAtOnce <= count; key += kKeysAtOnce) score(std::integral_constant<int, kKeysAtOnce>(), key);
    if constexpr (Edge) {
      if (key < count && count >= kKeysAtOnce)  // some once more, which costs less than the rest one by one
        score(std::integral_constant<int, kKeysAtOnce>(), count - kKeysAtOnce);
      else
        for (; key < count; ++key) score(std::integral_constant<int, 1>(), key);
      hide_in_block(block, tile, scratch.scores);
    }
    weigh_block(block, count, scratch);
    add_values(block, values, count, scratch);
  }

  /// In passes as even as can be: where few columns are left, their sums wait for one another.
  static KV_INLINE void add_values(Block& block, const Number* values, int count, const Scratch& scratch) {
    constexpr int kColumns = kValueWidth / kLanes, kPasses = (kColumns + kColumnsAtOnce - 1) / kColumnsAtOnce;
    constexpr int kEach = kColumns / kPasses, kWider = kColumns % kPasses;
    if constexpr (kWider > 0)
      for (int pass = 0; pass < kWider; ++pass) add_columns<kEach + 1>(block, values, pass * (kEach + 1), count, scratch);
    for (int pass = kWider; pass < kPasses; ++pass) add_columns<kEach>(block, values, kWider + pass * kEach, count, scratch);
  }

  /// What the queries of a block see of a panel, tile by tile: only tiles on an edge of what they see hide anything.
  /// `ahead`: whether to ask for the next panel meanwhile.
  KV_NOINLINE static void attend_block(Block& block, const Span<Policy>& span, const Panel& panel, bool ahead,
                                       const Scaling<Policy>& scaling, Scratch& scratch) {
    const int64_t first = block.position[0], last = block.position[block.count - 1];
    const int64_t all_from = span.first_seen(last), all_to = first + 1;  // every query sees [all_from, all_to)
    int64_t from = std::max(span.first, span.first_seen(first));
    const int64_t end = std::min(span.end, last + 1);
    if (kDots) from -= (from - span.first) % 2;  // values lie in pairs
    while (from < end) {
      const bool whole = from >= all_from && from + kBlockTile <= std::min(end, all_to);
      const Span<Policy> tile = span.part(from, std::min(from + kBlockTile, end));
      const int64_t at = from - span.first;
      const Number *keys = panel.keys + at * kKeyDim, *values = panel.values + at * kValueWidth;
      if (whole)
        attend_block_tile<false>(block, tile, keys, values, ahead, scaling, scratch);
      else
        attend_block_tile<true>(block, tile, keys, values, ahead, scaling, scratch);
      from = tile.end;
    }
  }

  /// The chunk of `count` queries from `index` on, over the keys of `spans` in [key_from, key_to), counted from the first.
  static void attend_chunk(const Job<Policy>& job, int64_t row, int64_t head, int64_t index, int count,
                           const Spans<Policy>& spans, int64_t key_from, int64_t key_to, const Scaling<Policy>& scaling, Scratch& scratch) {
    const int blocks = (count + kBlock - 1) / kBlock;
    for (int b = 0; b < blocks; ++b)
      start_block(scratch.blocks[b], job, row, head, index + b * kBlock, std::min(kBlock, count - b * kBlock));
    for_each_part(spans, key_from, key_to, [&](const Span<Policy>& part) {
      for (int64_t from = part.first; from < part.end; from += kPanel) {
        const Span<Policy> span = part.part(from, std::min(from + kPanel, part.end));
        const Panel panel = Numbers::prepare(span.keys, span.values, static_cast<int>(span.count()), scratch.keys, scratch.values);
        for (int b = 0; b < blocks; ++b) attend_block(scratch.blocks[b], span, panel, b == 0, scaling, scratch);
      }
    });
  }
};

}  // namespace kv
