// What fused operators share: checks, and jobs of `rotated` over a run of elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "actzip/codec.hpp"
#include "codec/job.hpp"
#include "codec/message.hpp"
#include "format/geometry.hpp"
#include "ops/backend.hpp"

namespace actzip::ops {

inline void check_pointer(std::string_view call, std::string_view what, const void* data) {
  constexpr std::size_t kAlignment = 16;
  if (data != nullptr && reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0) return;
  codec::fail(ErrorCode::misaligned, "{}: {} at {} (allowed: a multiple of {}, not null)", call, what, data,
              kAlignment);
}

inline void check_bytes(std::string_view call, std::string_view what, ConstByteSpan bytes, std::size_t needed) {
  if (bytes.size != needed) {
    codec::fail(ErrorCode::wrong_size, "{}: {} has {} bytes (allowed: {})", call, what, bytes.size, needed);
  }
  if (needed > 0) check_pointer(call, what, bytes.data);
}

inline bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }

/// Whether the kernels support this spec, element type and device.
inline bool takes(const CodecSpec& spec, DType dtype, Device device) {
  const auto* rotated = std::get_if<Rotated>(&spec);
  return device.kind == DeviceKind::cuda && cuda::has_fused_operators() && rotated != nullptr && !rotated->mask_plane &&
         rotated->group == GroupSize(kGroup) && is_float(dtype);
}

inline format::ElementOrder run_of(std::int64_t elems) { return format::element_order(Shape::contiguous({elems})); }

/// Makes the job that encodes `elems` elements from `x` on.
inline codec::EncodeJob encode_run(std::string_view call, const Rotated& spec, DType dtype, std::int64_t elems,
                                   const void* x, ByteSpan dst, Seed seed, const Stream& stream) {
  check_bytes(call, "dst", dst, encoded_bytes(spec, dtype, elems));
  check_pointer(call, "x", x);
  const format::Geometry geometry = format::geometry(spec, elems, Segments{});
  return {.src = {x, dtype, run_of(elems)},
          .geometry = geometry,
          .sections = format::sections(spec, geometry, dtype),
          .dst = dst.data,
          .workspace = nullptr,
          .segment_bits = nullptr,
          .seed = seed,
          .stream = &stream};
}

/// Makes the job that decodes `elems` elements to `dst`.
inline codec::DecodeJob decode_run(std::string_view call, const Rotated& spec, DType dtype, std::int64_t elems,
                                   ConstByteSpan src, void* dst, Seed seed, const Stream& stream) {
  check_bytes(call, "src", src, encoded_bytes(spec, dtype, elems));
  check_pointer(call, "the result", dst);
  const format::Geometry geometry = format::geometry(spec, elems, Segments{});
  return {.src = src.data,
          .dst = {dst, dtype, run_of(elems)},
          .geometry = geometry,
          .sections = format::sections(spec, geometry, dtype),
          .seed = seed,
          .stream = &stream};
}

}  // namespace actzip::ops
