// Small value types that every part shares: element types, devices, and strong types for numbers that would otherwise
// be easy to mix up.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace actzip {

enum class DType : std::uint8_t { f32, f16, bf16, f64, boolean, u8, i8, i16, i32, i64 };

/// Bytes of one element.
constexpr std::size_t dtype_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
    case DType::i8: return 1;
    case DType::f16:
    case DType::bf16:
    case DType::i16: return 2;
    case DType::f32:
    case DType::i32: return 4;
    case DType::f64:
    case DType::i64: return 8;
  }
  return 0;
}

/// "f32", "bool", "i64", ...
std::string_view to_string(DType dtype) noexcept;
/// The inverse of to_string(). Throws Error(unsupported_dtype), which names what exists.
DType parse_dtype(std::string_view text);

/// Bits of one code.
struct Bits {
  int value;
  explicit constexpr Bits(int bits) noexcept : value(bits) {}
  auto operator<=>(const Bits&) const = default;
};

/// Number of elements that share one set of statistics.
struct GroupSize {
  int value;
  explicit constexpr GroupSize(int elems) noexcept : value(elems) {}
  auto operator<=>(const GroupSize&) const = default;
};

/// The seed of random signs and dither. Decoding needs the seed of encoding, so store it with the bytes. A CUDA graph
/// replays one launch many times: give it the seed by device pointer, and change the value there.
class Seed {
 public:
  explicit constexpr Seed(std::uint64_t value) noexcept : value_(value) {}

  /// A seed that lies at `address`, in the memory of the device that runs the call. It is read when the call runs, and
  /// `address` must stay valid until then.
  static constexpr Seed at(const std::uint64_t* address) noexcept {
    Seed seed{0};
    seed.address_ = address;
    return seed;
  }

  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }
  [[nodiscard]] constexpr const std::uint64_t* address() const noexcept { return address_; }

 private:
  std::uint64_t value_;
  const std::uint64_t* address_ = nullptr;
};

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;

  static constexpr Device cpu() noexcept { return {}; }
  static constexpr Device cuda(int index = 0) noexcept { return {DeviceKind::cuda, index}; }
};

}  // namespace actzip
