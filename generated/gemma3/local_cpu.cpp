// Written by kvgen from gemma3.kv and yours to keep: kvgen claims no right to it. Edit gemma3.kv.
// kvgen: gemma3.kv source 9c5354bdbcbb body dc5cb3e7a24e codegen 1
// Local: store tokens and attend to them, 4/1 heads of 256 and 256.
//
// A row of the batch counts its tokens from 0: positions. A query at position p sees [first_seen(p), p].
// Built for one type of stored number, KV_ELEMENT: float, kv::Float16 or kv::BFloat16.
#include "_cpu.h"

#ifndef KV_ELEMENT
#define KV_ELEMENT kv::BFloat16
#endif

namespace {

using namespace kv;
using Element = KV_ELEMENT;

constexpr int kQueryHeads = 4;
constexpr int kKvHeads = 1;
constexpr int kGroup = 4;  // query heads that read one pair of keys and values
constexpr int kKeyDim = 256;
constexpr int kValueDim = 256;
constexpr int64_t kWindow = 512;
constexpr int64_t kRing = 519;
constexpr int kFewestSplits = 4;  // of a row's keys, when there are enough of them
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// -- What is asked, and where the keys and values of a query lie

/// One call, filled in by the Python side: `_cpu.py` has the same fields in the same order. Strides are in numbers, by row,
/// head and column; null: the numbers lie side by side.
struct Job {
  int64_t rows, width, slots;             // of the batch; columns of the append; slots a row of the planes
  const int64_t *starts, *firsts, *ends;  // column i of row r is position starts[r] + i, real inside [firsts[r], ends[r])
  Element *keys, *values;                 // planes [rows, kKvHeads, slots, dim]
  const Element *new_keys, *new_values;   // the columns [rows, kKvHeads, width, dim]; attend: null if they are in the planes
  const int64_t *key_strides, *value_strides;  // append: of the columns
  Element* overwritten;                   // append: keys, then values that were in the columns' slots; null: nobody asks
  const void* query;                      // [rows, kQueryHeads, width, kKeyDim]
  const int64_t* query_strides;
  int64_t query_is_float;                 // float, else Element; also of `out`
  void* out;                              // [rows, kQueryHeads, width, kValueDim], side by side
  float* lse;                             // [rows, kQueryHeads, width]; null: nobody asks
  const float* sink_logits;               // [kQueryHeads]; only read where the policy declares them
  double scale;
  void* workspace;
  int64_t workspace_bytes;
  int64_t threads;                        // 0: as many as torch uses, where the work is worth it
};

/// The first number of a row, head and column.
KV_INLINE int64_t offset_of(const int64_t* strides, int64_t heads, int64_t width, int64_t dim, int64_t row, int64_t head, int64_t column) {
  if (strides == nullptr) return ((row * heads + head) * width + column) * dim;
  return row * strides[0] + head * strides[1] + column * strides[2];
}

constexpr int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }
constexpr int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

/// The first position that the query at `position` sees.
KV_INLINE int64_t first_seen(int64_t position) {
  int64_t first = 0;
  first = std::max(first, position - kWindow + 1);
  return first;
}

KV_INLINE int64_t slot_of(int64_t position) {
  return position % kRing;
}

/// Positions [first, end) whose keys and values lie side by side.
struct Span {
  const Element *keys, *values;
  int64_t first, end;

  int64_t count() const { return end - first; }
  Span part(int64_t from, int64_t to) const {
    return {keys + (from - first) * kKeyDim, values + (from - first) * kValueDim, from, to};
  }
};

/// The first position of a span that the query at `position` sees; it sees the rest of it up to itself.
KV_INLINE int64_t first_seen_in(const Span&, int64_t position) {
  return first_seen(position);
}

/// All that some queries of a row and kv head see, in ascending order, as few spans.
class Spans {
 public:
  /// What the queries at positions [first, end) see.
  Spans(const Job& job, int64_t row, int64_t head, int64_t first, int64_t end) {
    const int64_t plane = row * kKvHeads + head;
    keys_ = job.keys + plane * job.slots * kKeyDim;
    values_ = job.values + plane * job.slots * kValueDim;
    start_ = job.starts[row];
    stored_ = job.ends[row];
    if (job.new_keys != nullptr) {
      stored_ = job.firsts[row];
      new_keys_ = job.new_keys + plane * job.width * kKeyDim;
      new_values_ = job.new_values + plane * job.width * kValueDim;
    }
    add(first_seen(first), end);
  }

  const Span* begin() const { return spans_; }
  const Span* end() const { return spans_ + count_; }
  int64_t keys() const {
    int64_t sum = 0;
    for (const Span& span : *this) sum += span.count();
    return sum;
  }

 private:
  void add(int64_t first, int64_t end) {
    const int64_t stored_end = std::min(end, stored_);
    while (first < stored_end) {  // to the end of the ring, then on from its start
      const int64_t slot = slot_of(first);
      const int64_t run = std::min(stored_end - first, kRing - slot);
      push({keys_ + slot * kKeyDim, values_ + slot * kValueDim, first, first + run});
      first += run;
    }
    if (first >= end) return;
    const int64_t column = first - start_;
    push({new_keys_ + column * kKeyDim, new_values_ + column * kValueDim, first, end});
  }

  void push(const Span& span) { spans_[count_++] = span; }

  const Element *keys_, *values_;
  const Element *new_keys_ = nullptr, *new_values_ = nullptr;
  int64_t start_, stored_;  // the position of column 0; positions before `stored_` are in the planes
  Span spans_[6];
  int count_ = 0;
};

/// Calls `use` with the spans' keys [from, to), counted from the first.
template <class Use>
KV_INLINE void for_each_part(const Spans& spans, int64_t from, int64_t to, Use&& use) {
  for (const Span& span : spans) {
    const int64_t first = std::max<int64_t>(from, 0), end = std::min(to, span.count());
    if (first < end) use(span.part(span.first + first, span.first + end));
    from -= span.count();
    to -= span.count();
  }
}

KV_INLINE int64_t query_offset(const Job& job, int64_t row, int64_t head, int64_t column) {
  return offset_of(job.query_strides, kQueryHeads, job.width, kKeyDim, row, head, column);
}

/// A query's numbers as float, then zeros up to `width`.
KV_NOINLINE inline void load_query(const Job& job, int64_t row, int64_t head, int64_t column, float* to, int width) {
  const int64_t at = query_offset(job, row, head, column);
  if (job.query_is_float)
    widen(static_cast<const float*>(job.query) + at, to, kKeyDim, width);
  else
    widen(static_cast<const Element*>(job.query) + at, to, kKeyDim, width);
}

// -- Appending

/// Stores the real columns of one row and kv head; of more than the ring holds, only the newest.
KV_INLINE void append(const Job& job, int64_t row, int64_t head) {
  const int64_t plane = row * kKvHeads + head;
  Element* old_values = job.overwritten == nullptr ? nullptr : job.overwritten + job.rows * kKvHeads * job.width * kKeyDim;
  for (int64_t position = job.firsts[row]; position < job.ends[row]; ++position) {
    if (position < job.ends[row] - kRing) continue;
    const int64_t column = position - job.starts[row], slot = plane * job.slots + slot_of(position);
    Element* key = job.keys + slot * kKeyDim;
    Element* value = job.values + slot * kValueDim;
    if (job.overwritten != nullptr) {
      const int64_t old = plane * job.width + column;
      std::memcpy(job.overwritten + old * kKeyDim, key, kKeyDim * sizeof(Element));
      std::memcpy(old_values + old * kValueDim, value, kValueDim * sizeof(Element));
    }
    const int64_t new_key = offset_of(job.key_strides, kKvHeads, job.width, kKeyDim, row, head, column);
    const int64_t new_value = offset_of(job.value_strides, kKvHeads, job.width, kValueDim, row, head, column);
    std::memcpy(key, job.new_keys + new_key, kKeyDim * sizeof(Element));
    std::memcpy(value, job.new_values + new_value, kValueDim * sizeof(Element));
  }
}

// -- From scores to answers

/// Scores of float are compared in base 2: what multiplies q . k.
struct Scaling {
  float factor;
  explicit Scaling(double scale) : factor(static_cast<float>(scale) * kLog2E) {}
  KV_INLINE Vec operator()(Vec dots) const { return dots * splat(factor); }
};

/// A query before its first key: the lowest maximum, so that differences from it are never NaN.
constexpr float kNoMaximum = -FLT_MAX;

/// Where the answers of one query go.
struct Answer {
  void* out;
  float* lse;  // or null
  bool is_float;
};

KV_INLINE Answer answer_of(const Job& job, int64_t row, int64_t head, int64_t column) {
  const int64_t at = (row * kQueryHeads + head) * job.width + column;
  const bool is_float = job.query_is_float != 0;
  void* out = is_float ? static_cast<void*>(static_cast<float*>(job.out) + at * kValueDim)
                       : static_cast<void*>(static_cast<Element*>(job.out) + at * kValueDim);
  float* lse = job.lse != nullptr ? job.lse + at : nullptr;
  return {out, lse, is_float};
}

/// sum * factor, stored as `Out`. Paired sums hold the even, then the odd numbers of each 2 * kLanes.
template <bool Paired, class Out>
KV_INLINE void store_scaled(const float* sum, float factor, Out* out) {
  if constexpr (!Paired) {
    for (int d = 0; d < kValueDim; ++d) from_float(sum[d] * factor, out[d]);
  } else {
    for (int d = 0; d < kValueDim; d += 2 * kLanes) {
      const Vec evens = load(sum + d) * splat(factor), odds = load(sum + d + kLanes) * splat(factor);
      if constexpr (std::is_same_v<Out, BFloat16>) {
        store(out + d, to_pairs(evens, odds));
      } else {
        for (int i = 0; i < kLanes; ++i) {
          from_float(evens[i], out[d + 2 * i]);
          from_float(odds[i], out[d + 2 * i + 1]);
        }
      }
    }
  }
}

/// The answer of a query whose keys gave `sum` of values and `total` of weights, both relative to 2^maximum.
template <bool Paired>
KV_NOINLINE void finish(const float* sum, float maximum, float total, const Answer& answer) {
  const float factor = total > 0.0f ? 1.0f / total : 0.0f;
  if (answer.is_float)
    store_scaled<Paired>(sum, factor, static_cast<float*>(answer.out));
  else
    store_scaled<Paired>(sum, factor, static_cast<Element*>(answer.out));
  if (answer.lse != nullptr) *answer.lse = total > 0.0f ? (maximum + std::log2(total)) * kLn2 : -INFINITY;
}

/// A part of a query's keys: the sums of values, then the maximum and the total.
template <int Width>
KV_INLINE void put_part(float* part, const float* sum, float maximum, float total) {
  std::memcpy(part, sum, Width * sizeof(float));
  part[Width] = maximum;
  part[Width + 1] = total;
}

/// The parts of a query's keys, in ascending order.
template <bool Paired, int Width>
KV_NOINLINE void merge_parts(const float* parts, int count, int64_t stride, const Answer& answer) {
  float top = kNoMaximum, total = 0.0f;
  for (int i = 0; i < count; ++i) top = std::max(top, parts[i * stride + Width]);
  alignas(64) float sum[Width] = {};
  for (int i = 0; i < count; ++i) {
    const float* part = parts + i * stride;
    const float weight = std::exp2(part[Width] - top);
    total += weight * part[Width + 1];
    for (int d = 0; d < Width; ++d) sum[d] += weight * part[d];
  }
  finish<Paired>(sum, top, total, answer);
}

// -- A few queries of one kv head: decoding, and short verify windows
//
// Keys stay as they lie. A vector holds kQuads queries, a quad of lanes each; four dwords of a key, repeated in every quad,
// meet four dwords of each query, and four keys' sums fold into one vector of scores: lane 4 * query + key.

/// Numbers are computed with as they are stored, two bfloat16 a dword; others are first widened to float, a tile at a time.
constexpr bool kPairs = std::is_same_v<Element, BFloat16> && kKeyDim % 8 == 0 && kValueDim % (2 * kLanes) == 0;
constexpr bool kAsStored =
    kPairs || (std::is_same_v<Element, float> && kKeyDim % 4 == 0 && kValueDim % kLanes == 0);
constexpr bool kDots = kPairs && kHasDot;
constexpr int kPerDword = kPairs ? 2 : 1;
constexpr int kKeyWidth = kAsStored ? kKeyDim : round_up(kKeyDim, 4);
constexpr int kValueWidth = kAsStored ? kValueDim : round_up(kValueDim, kLanes);
constexpr int kTile = 64;           // keys whose scores are held at once
constexpr int kPrefetchKeys = 64;   // how far ahead memory is asked for

using Number = std::conditional_t<kPairs, BFloat16, float>;

template <int Queries>
class Decode {
 public:
  static constexpr int kVectors = (Queries + kQuads - 1) / kQuads;  // of queries
  static constexpr int kSteps = kKeyWidth / (4 * kPerDword);        // quads of dwords in a key

  /// Sets `count` queries, the first at position `first`: token by token, the kGroup heads of each.
  KV_NOINLINE void start(const Job& job, int64_t row, int64_t head, int64_t first, int count) {
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

  KV_NOINLINE void attend(const Span& span, const Scaling& scaling, float* wide) {
    for (int64_t from = span.first; from < span.end; from += kTile) {
      const Span tile = span.part(from, std::min(from + kTile, span.end));
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
  bool all_see(const Span& tile) const { return tile.first >= first_seen_in(tile, last_) && tile.end <= first_ + 1; }

  static constexpr int kScores = kTile / 4;
  static constexpr int kMostPass = kManyRegisters ? 4 : 3;
  static constexpr int kPass =  // query vectors that meet a key at once
      kVectors <= kMostPass ? kVectors : kVectors % 2 == 0 ? 2 : 1;
  static constexpr int kKeys = std::max(4, (kManyRegisters ? 16 : 8) / kPass / 4 * 4);  // keys in flight
  static constexpr int kForms = kPairs && !kDots ? 2 : 1;  // pairs without a dot product are met as evens and odds
  static_assert(kVectors % kPass == 0 && kTile % kKeys == 0, "whole passes");

  KV_INLINE void pack(const Job& job, int64_t row, int64_t head, int64_t column, int query) {
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
  KV_INLINE void attend_tile(const Span& tile, const Scaling& scaling, float* wide) {
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
  KV_NOINLINE void hide(const Span& tile, int groups, Vec (*scores)[kVectors]) const {
    for (int v = 0; v < kVectors; ++v) {
      Ints from, to;
      for (int lane = 0; lane < kLanes; ++lane) {
        const int64_t position = position_[v][lane / 4];
        from[lane] = static_cast<int32_t>(std::max<int64_t>(first_seen_in(tile, position) - tile.first, 0));
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

constexpr int kWideFloats = kAsStored ? 1 : kTile * std::max(kKeyWidth, kValueWidth);

// -- Many queries of one kv head: prefill, chunks, and verify windows of more queries than a few vectors hold
//
// kBlock queries lie across the lanes, keys go down: a key's number, in all lanes, meets that number of every query. Keys and
// values are prepared once a panel, as float or (values, where there are dot products) as pairs of keys, for all blocks.

constexpr bool kWindowDots = std::is_same_v<Element, BFloat16> && kHasDot && kKeyDim % 2 == 0 && kValueDim % (2 * kLanes) == 0;
constexpr int kWindowValueWidth = round_up(kValueDim, kLanes);
constexpr int kKeySteps = kWindowDots ? kKeyDim / 2 : kKeyDim;  // dwords of a key
constexpr int kBlockVectors = kLanes == 4 && kManyRegisters ? 4 : 2;
constexpr int kBlock = kBlockVectors * kLanes;
constexpr int kKeysAtOnce = kLanes == 16 ? 8 : kLanes == 8 ? 6 : 4;
constexpr int kRowsAtOnce = kLanes == 16 ? 8 : 4;
constexpr int kColumnsAtOnce = kLanes == 8 ? 3 : kLanes == 4 && kManyRegisters ? 4 : 2;
constexpr int kBlockTile = 8 * kKeysAtOnce;                           // keys whose scores are held at once
constexpr int kPanel = 4 * kBlockTile;                               // keys prepared at once
constexpr int kChunkTokens = std::max(1, 512 / kGroup);              // of queries that share panels
constexpr int kChunkBlocks = (kChunkTokens * kGroup + kBlock - 1) / kBlock;
static_assert(kBlock % kRowsAtOnce == 0 && kBlockTile % 2 == 0, "whole blocks, whole pairs");

using WindowNumber = std::conditional_t<kWindowDots, BFloat16, float>;

/// The keys and values of a span of up to kPanel positions, prepared.
struct Panel {
  const WindowNumber *keys, *values;
};

/// kBlock queries and what they have summed so far.
struct Block {
  alignas(64) uint32_t queries[kKeySteps][kBlock];  // floats, or pairs of bfloat16
  alignas(64) float sum[kBlock][kWindowValueWidth];
  alignas(64) float maximum[kBlock], total[kBlock];
  int64_t position[kBlock];
  int count;
};

struct WindowScratch {
  Block blocks[kChunkBlocks];
  alignas(64) WindowNumber keys[kPanel * kKeyDim];
  alignas(64) WindowNumber values[kPanel * kWindowValueWidth];
  alignas(64) float scores[kBlockTile][kBlock];
  alignas(64) uint32_t pairs[kBlockTile / 2][kBlock];
};

/// Queries [index, index + count) of a row and kv head, counted token by token, the kGroup heads of each.
KV_NOINLINE inline void start_block(Block& block, const Job& job, int64_t row, int64_t head, int64_t index, int count) {
  block.count = count;
  for (int i = 0; i < kBlock; ++i) {
    const int64_t at = index + std::min(i, count - 1), token = at / kGroup;
    block.position[i] = job.firsts[row] + token;
    alignas(64) float query[kKeyDim];
    load_query(job, row, head * kGroup + at % kGroup, job.firsts[row] + token - job.starts[row], query, kKeyDim);
    for (int step = 0; step < kKeySteps; ++step) {
      if constexpr (kWindowDots) {
        BFloat16 pair[2];
        from_float(query[2 * step], pair[0]);
        from_float(query[2 * step + 1], pair[1]);
        block.queries[step][i] = bit_cast<uint32_t>(pair);
      } else {
        block.queries[step][i] = bit_cast<uint32_t>(query[step]);
      }
    }
    block.maximum[i] = kNoMaximum;
    block.total[i] = 0.0f;
  }
  std::memset(block.sum, 0, sizeof block.sum);
}

/// Values of two keys as pairs, evens before odds in each 2 * kLanes; a missing second key is zeros.
template <class Stored>
KV_INLINE void pair_values(const Stored* low, const Stored* high, Stored* to) {
  for (int d = 0; d < kValueDim; d += 2 * kLanes) {
    const Bits a = load<Bits>(low + d), b = high != nullptr ? load<Bits>(high + d) : Bits{};
    store(to + 2 * d, (a & splat(0xffffu)) | (b << 16));
    store(to + 2 * d + 2 * kLanes, (a >> 16) | (b & splat(0xffff0000u)));
  }
}

template <class Stored>
KV_NOINLINE Panel prepare(const Stored* keys, const Stored* values, int count, WindowScratch& scratch) {
  if constexpr (kWindowDots) {
    for (int i = 0; i < count; i += 2)
      pair_values(values + i * kValueDim, i + 1 < count ? values + (i + 1) * kValueDim : nullptr,
                  scratch.values + i * kWindowValueWidth);
    return {keys, scratch.values};
  } else {
    for (int i = 0; i < count; ++i) {
      widen(keys + i * kKeyDim, scratch.keys + i * kKeyDim, kKeyDim, kKeyDim);
      widen(values + i * kValueDim, scratch.values + i * kWindowValueWidth, kValueDim, kWindowValueWidth);
    }
    return {scratch.keys, scratch.values};
  }
}

KV_INLINE Vec multiply_add_dword(Vec sum, Bits a, uint32_t b) {
  if constexpr (kWindowDots) return dot_pairs(a, splat(b), sum);
  return bit_cast<Vec>(a) * splat(bit_cast<float>(b)) + sum;
}

template <class Number>
KV_INLINE uint32_t dword(const Number* numbers, int i) {
  uint32_t bits;
  std::memcpy(&bits, reinterpret_cast<const unsigned char*>(numbers) + 4 * i, 4);
  return bits;
}

/// Scores of Keys keys with all queries of the block.
template <int Keys>
KV_NOINLINE void score_block(const Block& block, const WindowNumber* keys, const Scaling& scaling, float (*scores)[kBlock]) {
  Vec sums[Keys][kBlockVectors] = {};
  KV_UNROLL(4)
  for (int step = 0; step < kKeySteps; ++step) {
    Bits queries[kBlockVectors];
    for (int v = 0; v < kBlockVectors; ++v) queries[v] = load<Bits>(block.queries[step] + v * kLanes);
    for (int k = 0; k < Keys; ++k) {
      const uint32_t number = dword(keys + k * kKeyDim, step);
      for (int v = 0; v < kBlockVectors; ++v) sums[k][v] = multiply_add_dword(sums[k][v], queries[v], number);
    }
  }
  for (int k = 0; k < Keys; ++k)
    for (int v = 0; v < kBlockVectors; ++v) store(scores[k] + v * kLanes, scaling(sums[k][v]));
}

/// Scores of keys that a query does not see become -infinity.
inline void hide_in_block(const Block& block, const Span& tile, float (*scores)[kBlock]) {
  const int count = static_cast<int>(tile.count());
  for (int v = 0; v < kBlockVectors; ++v) {
    Ints from, to;
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t position = block.position[v * kLanes + lane];
      from[lane] = static_cast<int32_t>(std::max<int64_t>(first_seen_in(tile, position) - tile.first, 0));
      to[lane] = static_cast<int32_t>(std::min<int64_t>(position + 1 - tile.first, count));
    }
    for (int k = 0; k < count; ++k) {
      const Ints key = splat(k);
      store(scores[k] + v * kLanes, select((key >= from) & (key < to), load(scores[k] + v * kLanes), splat(-INFINITY)));
    }
  }
}

/// Scores become weights, relative to the largest score so far; what was summed before follows it.
KV_NOINLINE inline void weigh_block(Block& block, int count, WindowScratch& scratch) {
  if (kWindowDots && count % 2 != 0)
    for (int i = 0; i < kBlock; ++i) scratch.scores[count][i] = -INFINITY;
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
          for (int d = 0; d < kWindowValueWidth; d += kLanes)
            store(block.sum[at + i] + d, load(block.sum[at + i] + d) * splat(shrink[i]));
    }
    if constexpr (kWindowDots) {
      for (int k = 0; k < count; k += 2) {
        const Vec low = exp2(load(scratch.scores[k] + at) - now), high = exp2(load(scratch.scores[k + 1] + at) - now);
        total += low + high;
        store(scratch.pairs[k / 2] + at, to_pairs(low, high));
      }
    } else {
      for (int k = 0; k < count; ++k) {
        const Vec weight = exp2(load(scratch.scores[k] + at) - now);
        total += weight;
        store(scratch.scores[k] + at, weight);
      }
    }
    store(block.total + at, total);
  }
}

/// Adds weighted values, kRowsAtOnce queries and Columns vectors of their sums at a time in registers.
template <int Columns>
KV_NOINLINE void add_columns(Block& block, const WindowNumber* values, int column, int count, const WindowScratch& scratch) {
  constexpr int kStep = kWindowDots ? 2 : 1;  // keys a dword
  for (int row = 0; row < kBlock; row += kRowsAtOnce) {
    Vec sums[kRowsAtOnce][Columns];
    for (int r = 0; r < kRowsAtOnce; ++r)
      for (int c = 0; c < Columns; ++c) sums[r][c] = load(block.sum[row + r] + (column + c) * kLanes);
    const WindowNumber* value = values + column * kLanes * kStep;
    const uint32_t* weight = kWindowDots ? scratch.pairs[0] + row : nullptr;
    const float* single = scratch.scores[0] + row;
    KV_UNROLL(2)
    for (int k = 0; k < count; k += kStep) {
      Bits numbers[Columns];
      for (int c = 0; c < Columns; ++c) numbers[c] = load<Bits>(value + c * kLanes * kStep);
      for (int r = 0; r < kRowsAtOnce; ++r) {
        const uint32_t w = kWindowDots ? weight[r] : dword(single, r);
        for (int c = 0; c < Columns; ++c) sums[r][c] = multiply_add_dword(sums[r][c], numbers[c], w);
      }
      value += kWindowValueWidth * kStep;
      if (kWindowDots)
        weight += kBlock;
      else
        single += kBlock;
    }
    for (int r = 0; r < kRowsAtOnce; ++r)
      for (int c = 0; c < Columns; ++c) store(block.sum[row + r] + (column + c) * kLanes, sums[r][c]);
  }
}

template <bool Edge>
KV_INLINE void attend_block_tile(Block& block, const Span& tile, const WindowNumber* keys, const WindowNumber* values,
                                 const Scaling& scaling, WindowScratch& scratch) {
  const int count = Edge ? static_cast<int>(tile.count()) : kBlockTile;
  int k = 0;
  for (; k + kKeysAtOnce <= count; k += kKeysAtOnce)
    score_block<kKeysAtOnce>(block, keys + k * kKeyDim, scaling, scratch.scores + k);
  if constexpr (Edge) {
    for (; k < count; ++k) score_block<1>(block, keys + k * kKeyDim, scaling, scratch.scores + k);
    hide_in_block(block, tile, scratch.scores);
  }
  weigh_block(block, count, scratch);
  constexpr int kColumns = kWindowValueWidth / kLanes;
  int column = 0;
  for (; column + kColumnsAtOnce <= kColumns; column += kColumnsAtOnce)
    add_columns<kColumnsAtOnce>(block, values, column, count, scratch);
  if constexpr (kColumns % kColumnsAtOnce != 0)
    for (; column < kColumns; ++column) add_columns<1>(block, values, column, count, scratch);
}

/// What the queries of a block see of a panel, tile by tile: only tiles on an edge of what they see hide anything.
KV_NOINLINE inline void attend_block(Block& block, const Span& span, const Panel& panel, const Scaling& scaling, WindowScratch& scratch) {
  const int64_t first = block.position[0], last = block.position[block.count - 1];
  const int64_t all_from = first_seen_in(span, last), all_to = first + 1;  // every query sees [all_from, all_to)
  int64_t from = std::max(span.first, first_seen_in(span, first));
  const int64_t end = std::min(span.end, last + 1);
  if (kWindowDots) from -= (from - span.first) % 2;  // values lie in pairs
  while (from < end) {
    const bool whole = from >= all_from && from + kBlockTile <= std::min(end, all_to);
    // Up to where all queries see, a shorter tile leaves whole ones behind it.
    const int64_t aligned = kWindowDots ? span.first + round_up(static_cast<int>(all_from - span.first), 2) : all_from;
    const int64_t stop = from < all_from && aligned < from + kBlockTile ? aligned : from + kBlockTile;
    const Span tile = span.part(from, std::min(stop, end));
    const int64_t at = from - span.first;
    const WindowNumber *keys = panel.keys + at * kKeyDim, *values = panel.values + at * kWindowValueWidth;
    if (whole)
      attend_block_tile<false>(block, tile, keys, values, scaling, scratch);
    else
      attend_block_tile<true>(block, tile, keys, values, scaling, scratch);
    from = tile.end;
  }
}

/// The chunk of `count` queries from `index` on, over the keys of `spans` in [key_from, key_to), counted from the first.
inline void attend_chunk(const Job& job, int64_t row, int64_t head, int64_t index, int count, const Spans& spans, int64_t key_from,
                         int64_t key_to, const Scaling& scaling, WindowScratch& scratch) {
  const int blocks = (count + kBlock - 1) / kBlock;
  for (int b = 0; b < blocks; ++b)
    start_block(scratch.blocks[b], job, row, head, index + b * kBlock, std::min(kBlock, count - b * kBlock));
  for_each_part(spans, key_from, key_to, [&](const Span& part) {
    for (int64_t from = part.first; from < part.end; from += kPanel) {
      const Span span = part.part(from, std::min(from + kPanel, part.end));
      const Panel panel = prepare(span.keys, span.values, static_cast<int>(span.count()), scratch);
      for (int b = 0; b < blocks; ++b) attend_block(scratch.blocks[b], span, panel, scaling, scratch);
    }
  });
}

// -- Sharing the work

constexpr int kFewQueries = 8;              // a row's tokens times kGroup up to here: decode, else window
constexpr int64_t kSplitKeys = 512;         // keys of one part of a few queries
constexpr int64_t kWindowSplitKeys = 1024;  // of one part of a chunk of more
constexpr int64_t kSerialWork = 400000;     // products that one thread does faster than two agree to share them
constexpr int kPartStride = round_up(std::max(kValueWidth, kWindowValueWidth) + 2, 16);

/// One row's share of the work: chunks of its tokens, each over its keys in splits. It depends on nothing but the row.
struct RowPlan {
  int64_t tokens, keys;  // keys that its first chunk sees
  int chunks, splits;
  int first_item, first_part;

  bool few() const { return tokens * kGroup <= kFewQueries; }
  int chunk_queries() const { return static_cast<int>(std::min<int64_t>(tokens, kChunkTokens)) * kGroup; }
  int items() const { return chunks * splits * kKvHeads; }
  int parts() const { return splits > 1 ? items() * chunk_queries() : 0; }
};

struct alignas(64) FewScratch {
  float wide[kWideFloats];
};

/// A call's memory inside the workspace that the cache owns.
struct Memory {
  RowPlan* plans;
  std::atomic<int>* left;  // of a row's kv head: splits still to come
  float* parts;
  char* scratch;  // scratch_bytes a thread
  int64_t scratch_bytes, bytes;

  Memory(void* workspace, int64_t rows, int64_t part_count, bool all_few, int threads) {
    auto* base = reinterpret_cast<char*>(round(reinterpret_cast<intptr_t>(workspace)));
    const int64_t left_at = round(rows * int64_t{sizeof(RowPlan)});
    const int64_t parts_at = left_at + round(rows * kKvHeads * int64_t{sizeof(std::atomic<int>)});
    const int64_t scratch_at = parts_at + round(part_count * kPartStride * int64_t{sizeof(float)});
    scratch_bytes = all_few ? int64_t{sizeof(FewScratch)} : int64_t{sizeof(WindowScratch)};
    bytes = scratch_at + threads * scratch_bytes + 64;
    plans = reinterpret_cast<RowPlan*>(base);
    left = reinterpret_cast<std::atomic<int>*>(base + left_at);
    parts = reinterpret_cast<float*>(base + parts_at);
    scratch = base + scratch_at;
  }

 private:
  static int64_t round(int64_t bytes) { return (bytes + 63) / 64 * 64; }
};

inline int64_t splits_of(int64_t keys, int64_t keys_per_split) {
  const int64_t smaller = divide_up(divide_up(keys, kFewestSplits), kTile) * kTile;
  return std::max<int64_t>(1, divide_up(keys, std::clamp<int64_t>(smaller, kTile, keys_per_split)));
}

inline RowPlan plan_row(const Job& job, int64_t row, int first_item, int first_part) {
  RowPlan plan{job.ends[row] - job.firsts[row], 0, 0, 1, first_item, first_part};
  if (plan.tokens == 0) return plan;
  const int64_t per_chunk = std::min<int64_t>(plan.tokens, kChunkTokens);
  plan.chunks = static_cast<int>(divide_up(plan.tokens, per_chunk));
  plan.keys = Spans(job, row, 0, job.firsts[row], job.firsts[row] + per_chunk).keys();
  if (plan.chunks == 1) plan.splits = static_cast<int>(splits_of(plan.keys, plan.few() ? kSplitKeys : kWindowSplitKeys));
  return plan;
}

/// Padding columns of a row: zeros, and a log-sum-exp of nothing.
inline void clear_padding(const Job& job, int64_t row, int64_t from, int64_t to) {
  const size_t bytes = static_cast<size_t>(kValueDim) * (job.query_is_float ? sizeof(float) : sizeof(Element));
  for (int64_t head = row * kQueryHeads; from < to && head < (row + 1) * kQueryHeads; ++head) {
    const int64_t at = head * job.width + from;
    std::memset(static_cast<char*>(job.out) + static_cast<size_t>(at) * bytes, 0, static_cast<size_t>(to - from) * bytes);
    if (job.lse != nullptr) std::fill(job.lse + at, job.lse + at + (to - from), -INFINITY);
  }
}

/// The work of one attend.
class Attend {
 public:
  Attend(const Job& job, const Memory& memory) : job_(job), memory_(memory), scaling_(job.scale) {}

  void operator()(int item, int thread) {
    int64_t row = 0;
    while (item >= memory_.plans[row].first_item + memory_.plans[row].items()) ++row;
    const RowPlan& plan = memory_.plans[row];
    item -= plan.first_item;
    const int a_head = plan.chunks * plan.splits, head = item / a_head, part = item % a_head;
    char* scratch = memory_.scratch + thread * memory_.scratch_bytes;
    if (plan.few()) return few(plan, row, head, part, reinterpret_cast<FewScratch&>(*scratch));
    window(plan, row, head, part, reinterpret_cast<WindowScratch&>(*scratch));
  }

 private:
  void few(const RowPlan& plan, int64_t row, int head, int split, FewScratch& scratch) {
    const int queries = static_cast<int>(plan.tokens) * kGroup;
if (queries <= 4) return decode<4>(plan, row, head, split, queries, scratch.wide);
return decode<8>(plan, row, head, split, queries, scratch.wide);
  }

  template <int Queries>
  KV_NOINLINE void decode(const RowPlan& plan, int64_t row, int head, int split, int queries, float* wide) {
    Decode<Queries> decode;
    decode.start(job_, row, head, job_.firsts[row], queries);
    const Spans spans(job_, row, head, job_.firsts[row], job_.ends[row]);
    const int64_t per_split = keys_per_split(plan, spans);
    for_each_part(spans, split * per_split, (split + 1) * per_split,
                  [&](const Span& span) { decode.attend(span, scaling_, wide); });
    for (int i = 0; i < queries; ++i)
      deliver<kPairs, kValueWidth>(plan, row, head, split, i, i, decode.sum(i), decode.maximum(i), decode.total(i));
    merge<kPairs, kValueWidth>(plan, row, head);
  }

  void window(const RowPlan& plan, int64_t row, int head, int part, WindowScratch& scratch) {
    const int chunk = plan.chunks - 1 - part / plan.splits, split = part % plan.splits;  // the longest first
    const int64_t first = chunk * int64_t{kChunkTokens}, end = std::min<int64_t>(plan.tokens, first + kChunkTokens);
    const Spans spans(job_, row, head, job_.firsts[row] + first, job_.firsts[row] + end);
    const int64_t per_split = plan.splits > 1 ? keys_per_split(plan, spans) : spans.keys();
    const int queries = static_cast<int>(end - first) * kGroup;
    attend_chunk(job_, row, head, first * kGroup, queries, spans, split * per_split, (split + 1) * per_split, scaling_, scratch);
    for (int i = 0; i < queries; ++i) {
      const Block& block = scratch.blocks[i / kBlock];
      const int at = i % kBlock;
      deliver<kWindowDots, kWindowValueWidth>(plan, row, head, split, i, first * kGroup + i, block.sum[at], block.maximum[at], block.total[at]);
    }
    merge<kWindowDots, kWindowValueWidth>(plan, row, head);
  }

  static int64_t keys_per_split(const RowPlan& plan, const Spans& spans) {
    return divide_up(divide_up(spans.keys(), plan.splits), kTile) * kTile;
  }

  Answer answer(int64_t row, int head, int64_t query) const {
    const int64_t column = job_.firsts[row] - job_.starts[row] + query / kGroup;
    return answer_of(job_, row, head * kGroup + query % kGroup, column);
  }

  float* part(const RowPlan& plan, int head, int split, int query) const {
    return memory_.parts + (plan.first_part + int64_t{head * plan.splits + split} * plan.chunk_queries() + query) * kPartStride;
  }

  /// A query's result: to its answer, or, when the keys are split, to where its parts meet.
  template <bool Paired, int Width>
  void deliver(const RowPlan& plan, int64_t row, int head, int split, int index, int64_t query, const float* sum, float maximum, float total) {
    if (plan.splits == 1)
      finish<Paired>(sum, maximum, total, answer(row, head, query));
    else
      put_part<Width>(part(plan, head, split, index), sum, maximum, total);
  }

  /// Whoever brings the last part adds them all, in ascending order: the answer does not depend on who that is.
  template <bool Paired, int Width>
  void merge(const RowPlan& plan, int64_t row, int head) {
    if (plan.splits == 1 || memory_.left[row * kKvHeads + head].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    for (int query = 0; query < plan.chunk_queries(); ++query) {
      const int64_t stride = int64_t{plan.chunk_queries()} * kPartStride;
      merge_parts<Paired, Width>(part(plan, head, 0, query), plan.splits, stride, answer(row, head, query));
    }
  }

  const Job& job_;
  const Memory& memory_;
  const Scaling scaling_;
};

/// Returns 0, or how many bytes of workspace it needs; then nothing was done.
int64_t attend(const Job& job) {
  const int64_t for_plans = Memory(nullptr, job.rows, 0, true, 1).bytes;
  if (job.workspace_bytes < for_plans) return for_plans;
  RowPlan* plans = Memory(job.workspace, job.rows, 0, true, 1).plans;
  int items = 0, parts = 0;
  int64_t work = 0;
  bool all_few = true;
  for (int64_t row = 0; row < job.rows; ++row) {
    plans[row] = plan_row(job, row, items, parts);
    items += plans[row].items();
    parts += plans[row].parts();
    work += plans[row].keys * plans[row].tokens;
    all_few = all_few && plans[row].few();
  }
  const bool alone = work * kQueryHeads * (kKeyDim + kValueDim) < kSerialWork;
  const int threads = job.threads > 0 ? static_cast<int>(job.threads) : alone ? 1 : most_threads();
  const Memory memory(job.workspace, job.rows, parts, all_few, threads);
  if (job.workspace_bytes < memory.bytes) return memory.bytes;
  for (int64_t row = 0; row < job.rows; ++row) {
    for (int head = 0; head < kKvHeads; ++head) memory.left[row * kKvHeads + head].store(plans[row].splits, std::memory_order_relaxed);
    clear_padding(job, row, 0, job.firsts[row] - job.starts[row]);
    clear_padding(job, row, job.ends[row] - job.starts[row], job.width);
  }
  Attend work_of(job, memory);
  Share<Attend>(work_of, items, threads).run();
  return 0;
}

int64_t append_all(const Job& job) {
  const auto one = [&job](int item, int) { append(job, item / kKvHeads, item % kKvHeads); };
  const bool alone = job.width * job.rows * kKvHeads * (kKeyDim + kValueDim) < kSerialWork;
  const int threads = job.threads > 0 ? static_cast<int>(job.threads) : alone ? 1 : most_threads();
  Share<const decltype(one)>(one, static_cast<int>(job.rows * kKvHeads), threads).run();
  return 0;
}

}  // namespace

// -- What Python calls

#define KV_EXPORT extern "C" __attribute__((visibility("default")))

KV_EXPORT int64_t kv_attend(const Job* job) { return attend(*job); }
KV_EXPORT int64_t kv_append(const Job* job) { return append_all(*job); }
KV_EXPORT int64_t kv_pool_threads() { return pool() != nullptr ? most_threads() : 0; }  // 0: no pool was found
KV_EXPORT const char* kv_instructions() { return kInstructions; }

/// Asks for huge pages under memory that stays: fewer steps through page tables for the processor.
KV_EXPORT void kv_huge_pages(void* memory, int64_t bytes) {
#if defined(__linux__)
  constexpr intptr_t kPage = 2 << 20;
  const intptr_t address = reinterpret_cast<intptr_t>(memory);
  const intptr_t first = (address + kPage - 1) / kPage * kPage, end = (address + bytes) / kPage * kPage;
  if (first >= end) return;
  constexpr int kHuge = 14, kCollapse = 25;  // MADV_HUGEPAGE; MADV_COLLAPSE, since Linux 6.1: now, also what was touched
  const auto length = static_cast<std::size_t>(end - first);
  madvise(reinterpret_cast<void*>(first), length, kHuge);
  madvise(reinterpret_cast<void*>(first), length, kCollapse);  // a refusal costs nothing
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}
