// How error messages are made: one function that throws, and lists as text.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "actzip/error.hpp"
#include "actzip/spec.hpp"
#include "actzip/types.hpp"

namespace actzip::codec {

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

/// "f32, f16, bf16"
std::string list(std::span<const DType> types);

/// Does what validate() does; the message names the public function `call`.
void check_spec(std::string_view call, const CodecSpec& spec);

}  // namespace actzip::codec
