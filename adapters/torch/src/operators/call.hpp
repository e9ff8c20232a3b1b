// One call of an operator: the part of it that actzip reads.
#pragma once

#include <c10/core/TensorImpl.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace actzip::torch {

inline constexpr int kMaxArguments = 16;

struct Call {
  int count = 0;                                                ///< how many arguments are recorded
  std::array<const c10::TensorImpl*, kMaxArguments> tensors{};  ///< null if the argument is no tensor
  std::array<double, kMaxArguments> numbers{};                  ///< 0 if the argument is no number; 1 for true
  std::uint32_t absent = 0;                                     ///< bit i: argument i was left out, or is an empty list
  /// The storage of the first argument that is a parameter, or a view or cast of one. Set at the first save.
  const void* parameter = nullptr;

  [[nodiscard]] const c10::TensorImpl* tensor(int position) const {
    return position < count ? tensors[static_cast<std::size_t>(position)] : nullptr;
  }
  [[nodiscard]] bool is_absent(int position) const { return position >= count || ((absent >> position) & 1U) != 0; }
};

/// A slot as a number. It is cheap to find for each save; the name is built once per site.
struct SlotCode {
  static constexpr int kResult = kMaxArguments;
  static constexpr int kOther = kMaxArguments + 1;
  int value = kOther;  ///< an argument's position, kResult, or kOther + n
  bool operator==(const SlotCode&) const = default;
};

}  // namespace actzip::torch
