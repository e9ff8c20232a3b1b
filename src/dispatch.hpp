// Run-time values become template arguments here and nowhere else. Each list is written once; what is not in it is an
// error that names the list. Callers validate first, so reaching an error here is a fault of ours.
#pragma once

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

/// body.operator()<DType>() for the floating types that codecs compute with.
template <class Body>
void with_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32: return body.template operator()<DType::f32>();
    case DType::f16: return body.template operator()<DType::f16>();
    case DType::bf16: return body.template operator()<DType::bf16>();
    default: detail::not_in_list("floating element type");
  }
}

/// body.operator()<int>() for a width of 1 to Most bits.
template <int Most, class Body>
void with_bits(Bits bits, Body&& body) {
  detail::with_int<1>(bits.value, "bits", std::make_integer_sequence<int, Most>{}, body);
}

/// body.operator()<DType, int>(): both.
template <int Most, class Body>
void with_type_and_bits(DType dtype, Bits bits, Body&& body) {
  with_float(dtype, [&]<DType Type>() {
    with_bits<Most>(bits, [&]<int Width>() { body.template operator()<Type, Width>(); });
  });
}

/// body.operator()<bool>().
template <class Body>
void with_bool(bool value, Body&& body) {
  if (value) return body.template operator()<true>();
  body.template operator()<false>();
}

}  // namespace actzip
