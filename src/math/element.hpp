// Floating element types: how an element is stored, widened to binary32, rounded as in IEEE, and narrowed as in
// decoding, which saturates (format.md, section 5).
#pragma once

#include <cstdint>

#include "actzip/types.hpp"
#include "macros.hpp"
#include "math/float_bits.hpp"

namespace actzip::math {

template <DType Type>
struct Element;

template <>
struct Element<DType::f32> {
  using Storage = float;
  ACTZIP_HD static constexpr float widen(Storage x) { return x; }
  ACTZIP_HD static constexpr Storage round(float x) { return is_nan(x) ? float_of(kNanF32) : x; }
  ACTZIP_HD static constexpr Storage narrow(float x) { return round(x); }
};

template <>
struct Element<DType::bf16> {
  using Storage = std::uint16_t;
  static constexpr float kLargest = 0x1.fep127F;
  ACTZIP_HD static constexpr float widen(Storage x) { return bf16_to_f32(x); }
  ACTZIP_HD static constexpr Storage round(float x) { return f32_to_bf16(x); }
  /// Saturates: values that a codec decodes from finite ones stay finite.
  ACTZIP_HD static constexpr Storage narrow(float x) {
    return round(x > kLargest ? kLargest : x < -kLargest ? -kLargest : x);
  }
};

template <>
struct Element<DType::f16> {
  using Storage = std::uint16_t;
  static constexpr float kLargest = 65504.0F;
  ACTZIP_HD static constexpr float widen(Storage x) { return f16_to_f32(x); }
  ACTZIP_HD static constexpr Storage round(float x) { return f32_to_f16(x); }
  ACTZIP_HD static constexpr Storage narrow(float x) {
    return round(x > kLargest ? kLargest : x < -kLargest ? -kLargest : x);
  }
};

}  // namespace actzip::math
