// How operators of compiled graphs refer to encoded bytes: a codec's text, and a line of the graph with its seed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/string_view.h>

#include <cstdint>

#include "actzip/spec.hpp"
#include "actzip/types.hpp"
#include "actzip/view.hpp"

namespace actzip::torch {

/// Bytes that forward has handed over to backward.
struct GraphCode {
  const at::Tensor& bytes;
  c10::string_view codec;
  std::int64_t segments;
  const at::Tensor& seeds;  ///< of the graph
  std::int64_t line;        ///< of the graph's text
};

/// Returns the spec of a codec's text. Throws Error as parse_spec().
const CodecSpec& spec_of(c10::string_view codec);

Seed seed_of(const GraphCode& code);
ConstByteSpan bytes_of(const GraphCode& code);

/// Decodes on the current stream. Throws c10::Error for a type that no codec has.
at::Tensor decoded(const GraphCode& code, at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType type);

/// Says that the bytes were read, for the session's report.
void note_read(const GraphCode& code);

}  // namespace actzip::torch
