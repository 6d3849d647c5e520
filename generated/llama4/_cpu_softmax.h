// Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
// kvgen: llama4.kv source fd738860da89 body bf68bfae0353 codegen 1
// From scores to answers.
#pragma once

#include "_cpu_job.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kv {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

/// Scores of float are compared in base 2. Multiplies q . k, and with a softcap caps it.
template <class Policy>
struct Scaling {
  static constexpr bool kCapped = Policy::kSoftcap > 0.0f;
  static constexpr float kBefore = kCapped ? 1.0f / (kCapped ? Policy::kSoftcap : 1.0f) : kLog2E;
  static constexpr float kAfter = Policy::kSoftcap * kLog2E;
  float factor;

  explicit Scaling(double scale) : factor(static_cast<float>(scale) * kBefore) {}
  KV_INLINE Vec operator()(Vec dots) const {
    if constexpr (kCapped) return kv::tanh(dots * splat(factor)) * splat(kAfter);
    return dots * splat(factor);
  }
};

/// Scores become weights so many vectors at a time; tiles are filled up to that with scores of -infinity.
constexpr int kWeighed = 4;

/// Scores become weights relative to 2^maximum, which are added to `total`.
KV_INLINE void weigh(Vec (&scores)[kWeighed], Vec maximum, Vec& total) {
  for (Vec& score : scores) score -= maximum;
  exp2(scores);
  total += (scores[0] + scores[1]) + (scores[2] + scores[3]);
}

/// A query before its first key: the lowest maximum, so that differences from it are never NaN.
constexpr float kNoMaximum = -FLT_MAX;

/// Where the answers of one query go.
struct Answer {
  void* out;
  float* lse;  // or null
  float sink;  // its head's sink logit in base 2, where the policy has them
  bool is_float;
};

template <class Policy>
KV_INLINE Answer answer_of(const Job<Policy>& job, int64_t row, int64_t head, int64_t column) {
  const int64_t at = (row * Policy::kQueryHeads + head) * job.width + column;
  const bool is_float = job.query_is_float != 0;
  void* out = is_float ? static_cast<void*>(static_cast<float*>(job.out) + at * Policy::kValueDim)
                       : static_cast<void*>(static_cast<typename Policy::Element*>(job.out) + at * Policy::kValueDim);
  const float sink = Policy::kSinkLogits ? job.sink_logits[head] * kLog2E : 0.0f;
  return {out, job.lse != nullptr ? job.lse + at : nullptr, sink, is_float};
}

/// sum * factor, stored as `Out`. Paired sums hold the even, then the odd numbers of each 2 * kLanes.
template <int kValueDim, bool Paired, class Out>
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
template <class Policy, bool Paired>
KV_NOINLINE void finish(const float* sum, float maximum, float total, const Answer& answer) {
  float shrink = 1.0f;
  if constexpr (Policy::kSinkLogits) {  // the sink enters once, with no value
    const float top = std::max(maximum, answer.sink);
    shrink = std::exp2(maximum - top);
    total = total * shrink + std::exp2(answer.sink - top);
    maximum = top;
  }
  const float factor = total > 0.0f ? shrink / total : 0.0f;
  if (answer.is_float)
    store_scaled<Policy::kValueDim, Paired>(sum, factor, static_cast<float*>(answer.out));
  else
    store_scaled<Policy::kValueDim, Paired>(sum, factor, static_cast<typename Policy::Element*>(answer.out));
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
template <class Policy, bool Paired, int Width>
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
  finish<Policy, Paired>(sum, top, total, answer);
}

}  // namespace kv
