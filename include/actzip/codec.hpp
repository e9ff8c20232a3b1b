// The two calls everything else serves: a strided view becomes bytes, and bytes become a view.
//
// The caller owns all memory. actzip allocates nothing on a device, never synchronises, touches no global random
// generator and prints nothing. Same spec, elements and seed give the same bytes on every device and instruction set
// (`rotated`: up to rounding at a cut, see docs/format.md). All functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "actzip/error.hpp"
#include "actzip/spec.hpp"
#include "actzip/stream.hpp"
#include "actzip/types.hpp"
#include "actzip/view.hpp"

namespace actzip {

/// Exact size of what encode() writes, a closed formula of the number of elements, the segments and, where these have
/// bits of their own, their total.
/// Throws Error: invalid_spec, unsupported_dtype, invalid_view (too many elements), invalid_segments.
std::size_t encoded_bytes(const CodecSpec& spec, DType dtype, std::int64_t elems, Segments segments = {});

/// The same for the unique elements of a view's shape.
std::size_t encoded_bytes(const CodecSpec& spec, DType dtype, const Shape& shape, Segments segments = {});

/// Size of the workspace that encode() needs; 0 for most codecs.
/// `index` needs one 32-bit word, the *overflow word*: set it to 0 once, give it to as many calls as you like, and read
/// it whenever you wait for the device anyway. It is not 0 if any value lay outside the bound in any of them.
std::size_t workspace_bytes(const CodecSpec& spec, DType dtype, std::int64_t elems, Segments segments = {});

/// Compresses `src` into `dst`.
///
/// `dst` has exactly encoded_bytes() bytes, starts at a multiple of 16 and does not overlap `src`; every byte of it is
/// written. `workspace` has at least workspace_bytes() bytes, aligned to 4. `src`, `dst`, `workspace`, `segment_bits`,
/// a seed given by address and `stream` are on one device and stay valid until the work on `stream` is done. One kernel
/// launch on CUDA, which can be captured into a graph; two if segments have bits of their own, and for `dual` if maps
/// are not in blocks of 8 or do not fit a kernel that measures and codes at once.
///
/// `segment_bits` is for segments with bits of their own (Segments::total_bits), in whose place the bits of the spec
/// are not used: a byte for each segment, read when the call runs. What is below 1 is taken as 1 and what is above the
/// codec's most as that. If the sum is above the total, segments get what they ask for in their order as long as there
/// is room for one bit for each segment behind, then the most that still fits, then 1 bit.
/// Throws Error before anything is written: invalid_spec, unsupported_dtype, invalid_view, invalid_segments,
/// wrong_size, misaligned, device_mismatch, backend_unavailable, cuda_failure.
void encode(const CodecSpec& spec, const ConstTensorView& src, ByteSpan dst, Seed seed, const Stream& stream,
            Segments segments = {}, ByteSpan workspace = {}, ConstByteSpan segment_bits = {});

/// Restores into `dst` what encode() made with the same spec, seed, segments and number of elements. The bits that
/// segments have are in the bytes.
///
/// `dst` lists its dimensions in the memory order of what was encoded; its strides may differ (compact() gives the
/// dense ones). It must not overlap itself, but for dimensions of stride 0. Its type may be any floating type for the
/// floating codecs, whatever was encoded; bool gives the mask alone of `rotated` with a mask plane; `mask` decodes to
/// bool, bytes and floating types; `index` to i64, and to i32 up to a bound of 2^31; `copy` to the type it was given.
/// Arbitrary bytes decode to some values, never to a read or a write outside the buffers.
/// Memory, streams and errors as for encode().
void decode(const CodecSpec& spec, ConstByteSpan src, const TensorView& dst, Seed seed, const Stream& stream,
            Segments segments = {});

}  // namespace actzip
