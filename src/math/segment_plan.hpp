// How bits are distributed over segments. Each further bit of a segment saves some error, and the bits that save most
// are bought. docs/plan.md has the mathematics.
#pragma once

#include <math.h>  // NOLINT(modernize-deprecated-headers): sqrtf on host and device

#include <cstdint>

#include "actzip/spec.hpp"
#include "macros.hpp"
#include "math/float_bits.hpp"

namespace actzip::math {

/// The groups whose energy is measured in place of the whole segment's: `count` groups, `distance` groups apart.
/// Distances are odd because rows and channels mostly have even ones.
struct GroupSample {
  static constexpr std::int64_t kGroup = 256;
  static constexpr std::int64_t kEnough = 8;
  static constexpr std::int64_t kFarthest = 9;

  std::int64_t count;
  std::int64_t distance;

  ACTZIP_HD static constexpr GroupSample of(std::int64_t segment_elems) {
    const std::int64_t groups = segment_elems / kGroup;
    const std::int64_t odd = groups / kEnough | 1;
    const std::int64_t distance = odd < kFarthest ? odd : kFarthest;
    return {(groups + distance - 1) / distance, distance};
  }
  /// First element, within the segment, of the sample's group `i`.
  [[nodiscard]] ACTZIP_HD constexpr std::int64_t first(std::int64_t i) const { return i * distance * kGroup; }
};

/// How much noise in a segment disturbs the gradient, relative to other segments. Without a factor nothing is known of
/// the gradients; it is then the root of the energy, because segments of much energy tend to have small gradients
/// (docs/plan.md).
ACTZIP_HD float segment_weight(float energy, const float* factor) {
  return factor != nullptr ? energy * *factor : sqrtf(energy);
}

/// A weight that is safe to compute with: products stay finite; negative weights and NaN count as 0.
ACTZIP_HD constexpr float usable_weight(float weight) {
  constexpr float kMost = 0x1p100F;
  return weight > 0.0F ? (weight < kMost ? weight : kMost) : 0.0F;
}

/// The widths of a codec, and how much error each further bit saves.
struct BitSteps {
  static constexpr int kMost = Affine::kMostBits;
  static_assert(kMost >= Rotated::kMostBits);

  int least = 1;
  int most = 1;
  float error[kMost + 1] = {};  ///< by bits
  float saved[kMost + 1] = {};  ///< by the bit that follows this many; never increases

  /// What the bit after the first `bits` saves a segment, as an integer that sorts like the number.
  [[nodiscard]] ACTZIP_HD constexpr std::uint32_t key(float weight, int bits) const {
    return bits_of(weight * saved[bits]);
  }

  /// How many bits beyond the least save more than `limit`.
  [[nodiscard]] ACTZIP_HD constexpr int above(float weight, std::uint32_t limit) const {
    int bits = least;
    while (bits < most && key(weight, bits) > limit) ++bits;
    return bits - least;
  }

  /// How many bits save exactly `limit`.
  [[nodiscard]] ACTZIP_HD constexpr int equal(float weight, std::uint32_t limit) const {
    const int first = least + above(weight, limit);
    int bits = first;
    while (bits < most && key(weight, bits) == limit) ++bits;
    return bits - first;
  }
};

/// The error if the average is the least or the most bits, so that all segments have that width. `any` is the error at
/// another average; it is 0 if all weights are.
ACTZIP_HD constexpr float error_at_end(const BitSteps& steps, int bits, float any) {
  return any > 0.0F ? steps.error[bits] : 0.0F;
}

/// No key is above this one.
inline constexpr std::uint32_t kGreatestKey = 0x7f800000U;

/// The bits of a segment: all that save more than the limit, and of those that save exactly the limit as many as the
/// segments before it have left.
ACTZIP_HD constexpr int granted_bits(const BitSteps& steps, float weight, std::uint32_t limit, std::int64_t left) {
  const std::int64_t equal = steps.equal(weight, limit);
  const std::int64_t more = left < 0 ? 0 : left < equal ? left : equal;
  return steps.least + steps.above(weight, limit) + static_cast<int>(more);
}

}  // namespace actzip::math
