// The floating-point environment that the format requires: round to nearest, keep subnormals.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace actzip::cpu {

/// Sets this environment on the calling thread while the object lives. A framework may have set its threads to flush
/// subnormals.
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
  static constexpr unsigned kMaskedNearest = 0x1f80;  ///< as at program start: no traps, nearest, no flushing
  unsigned before_;
#endif
};

}  // namespace actzip::cpu
