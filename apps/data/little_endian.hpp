// Reads and appends little-endian numbers.
#pragma once

#include <concepts>
#include <cstddef>
#include <vector>

#include "file.hpp"

namespace actzip::data {

template <std::unsigned_integral T>
T little_endian(Bytes bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) value = static_cast<T>(value << 8U | bytes[at + i]);
  return value;
}

template <std::unsigned_integral T>
void append_little_endian(std::vector<std::uint8_t>& bytes, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

}  // namespace actzip::data
