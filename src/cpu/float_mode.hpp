// The floating-point environment that the format asks for: round to nearest, subnormals kept.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace actzip::cpu {

/// A framework may have set its threads to flush subnormals; while this lives, the calling thread does not.
class FloatMode {
 public:
#if defined(__SSE2__)
  FloatMode() noexcept : before_(_mm_getcsr()) { _mm_setcsr(kMaskedNearest); }
  ~FloatMode() { _mm_setcsr(before_); }
#else
  FloatMode() noexcept = default;
  ~FloatMode() {}
#endif
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__SSE2__)
  static constexpr unsigned kMaskedNearest = 0x1f80;  ///< what a program starts with: no traps, nearest, no flushing
  unsigned before_;
#endif
};

}  // namespace actzip::cpu
