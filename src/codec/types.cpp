#include "actzip/types.hpp"

#include <array>

#include "codec/message.hpp"

namespace actzip {

namespace {

constexpr std::array kAllTypes = {DType::f32, DType::f16, DType::bf16, DType::f64, DType::boolean,
                                  DType::u8,  DType::i8,  DType::i16,  DType::i32, DType::i64};

}  // namespace

std::string_view to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::f64: return "f64";
    case DType::boolean: return "bool";
    case DType::u8: return "u8";
    case DType::i8: return "i8";
    case DType::i16: return "i16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
  }
  return "unknown";
}

DType parse_dtype(std::string_view text) {
  for (const DType dtype : kAllTypes) {
    if (text == to_string(dtype)) return dtype;
  }
  codec::fail(ErrorCode::unsupported_dtype, "parse_dtype: '{}' is not an element type (allowed: {})", text,
              codec::list(kAllTypes));
}

std::string codec::list(std::span<const DType> types) {
  std::string text;
  for (const DType dtype : types) {
    if (!text.empty()) text += ", ";
    text += to_string(dtype);
  }
  return text;
}

}  // namespace actzip
