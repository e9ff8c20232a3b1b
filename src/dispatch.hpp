// Turns run-time values into template arguments. Each list of values is written once. Callers validate first, so a
// value that is not in its list is a bug in actzip, reported by a std::logic_error that names the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "actzip/spec.hpp"
#include "actzip/types.hpp"

namespace actzip {

namespace detail {
[[noreturn]] inline void not_in_list(const char* what) {
  throw std::logic_error(std::string("actzip: dispatch without validation: ") + what);
}

template <int First, int... Offsets, class Body>
void with_int(int value, const char* what, std::integer_sequence<int, Offsets...> /*range*/, Body&& body) {
  const bool found = ((value == First + Offsets && (body.template operator()<First + Offsets>(), true)) || ...);
  if (!found) not_in_list(what);
}
}  // namespace detail

/// Calls body.operator()<DType>() for the floating types that codecs compute with.
template <class Body>
void with_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32: return body.template operator()<DType::f32>();
    case DType::f16: return body.template operator()<DType::f16>();
    case DType::bf16: return body.template operator()<DType::bf16>();
    default: detail::not_in_list("floating element type");
  }
}

/// Stands for a width that is known only when a kernel runs, such as that of the current segment.
inline constexpr int kRunTimeBits = 0;

/// Calls body.operator()<int>() with the width of the spec.
template <class Spec, class Body>
void with_bits(const Spec& spec, Body&& body) {
  detail::with_int<1>(spec.bits.value, "bits", std::make_integer_sequence<int, Spec::kMostBits>{}, body);
}

/// The same, or kRunTimeBits if segments have bits of their own.
template <class Spec, class Body>
void with_bits(const Spec& spec, bool has_segment_bits, Body&& body) {
  if (has_segment_bits) return body.template operator()<kRunTimeBits>();
  with_bits(spec, body);
}

/// Calls body.operator()<DType, int>() with both.
template <class Spec, class Body>
void with_type_and_bits(DType dtype, const Spec& spec, Body&& body) {
  with_float(dtype,
             [&]<DType Type>() { with_bits(spec, [&]<int Width>() { body.template operator()<Type, Width>(); }); });
}

/// Calls body.operator()<int>() for the widths that index_bits() returns.
template <class Body>
void with_index_bits(int bits, Body&& body) {
  switch (bits) {
    case 1: return body.template operator()<1>();
    case 2: return body.template operator()<2>();
    case 4: return body.template operator()<4>();
    case 8: return body.template operator()<8>();
    case 16: return body.template operator()<16>();
    case 32: return body.template operator()<32>();
    default: detail::not_in_list("bits of an index");
  }
}

/// Calls body.operator()<std::uintN_t>() for elements that are only copied.
template <class Body>
void with_bytes(std::size_t bytes, Body&& body) {
  switch (bytes) {
    case 1: return body.template operator()<std::uint8_t>();
    case 2: return body.template operator()<std::uint16_t>();
    case 4: return body.template operator()<std::uint32_t>();
    case 8: return body.template operator()<std::uint64_t>();
    default: detail::not_in_list("bytes of an element");
  }
}

/// Calls body.operator()<bool>().
template <class Body>
void with_bool(bool value, Body&& body) {
  if (value) return body.template operator()<true>();
  body.template operator()<false>();
}

}  // namespace actzip
