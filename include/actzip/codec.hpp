// The two functions that everything else serves: encode() turns a strided view into bytes, decode() turns bytes into a
// view.
//
// The caller owns all memory. actzip allocates nothing on a device, never synchronises, uses no global random generator
// and prints nothing. The same spec, elements and seed give the same bytes on every device and instruction set
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

/// Exact size of what encode() writes: a closed formula of the number of elements, the segments and, if segments have
/// bits of their own, the total of those. Throws Error: invalid_spec, unsupported_dtype, invalid_view (too many
/// elements), invalid_segments.
std::size_t encoded_bytes(const CodecSpec& spec, DType dtype, std::int64_t elems, Segments segments = {});

/// The same, for the unique elements of a view's shape.
std::size_t encoded_bytes(const CodecSpec& spec, DType dtype, const Shape& shape, Segments segments = {});

/// Size of the workspace that encode() needs; 0 for most codecs. `index` needs one 32-bit word, the *overflow word*:
/// set it to 0 once, pass it to as many calls as you like, and read it whenever you wait for the device anyway. It is
/// not 0 if any of these calls met a value outside the bound.
std::size_t workspace_bytes(const CodecSpec& spec, DType dtype, std::int64_t elems, Segments segments = {});

/// Compresses `src` into `dst`.
///
/// `dst` has exactly encoded_bytes() bytes, starts at a multiple of 16 and does not overlap `src`; encode() writes
/// every byte of it. `workspace` has at least workspace_bytes() bytes, aligned to 4. `src`, `dst`, `workspace`,
/// `segment_bits`, a seed given by address and `stream` are on one device and stay valid until the work on `stream` is
/// done. On CUDA this is one kernel launch, which can be captured into a graph; it is two if segments have bits of
/// their own, and for `dual` if maps are not in blocks of 8 or do not fit a kernel that measures and codes at once.
///
/// `segment_bits` is for segments with bits of their own (Segments::total_bits), which replace the bits of the spec:
/// one byte for each segment, read when the call runs. Values below 1 count as 1, and values above the codec's most
/// bits as that most. If the sum exceeds the total, segments get what they ask for in their order, as long as one bit
/// remains for each segment behind; the next one gets the most that still fits, and the rest get 1 bit.
///
/// Throws Error before anything is written: invalid_spec, unsupported_dtype, invalid_view, invalid_segments,
/// wrong_size, misaligned, device_mismatch, backend_unavailable, cuda_failure.
void encode(const CodecSpec& spec, const ConstTensorView& src, ByteSpan dst, Seed seed, const Stream& stream,
            Segments segments = {}, ByteSpan workspace = {}, ConstByteSpan segment_bits = {});

/// Restores into `dst` what encode() made with the same spec, seed, segments and number of elements. The bytes
/// themselves hold the bits of segments that have their own.
///
/// `dst` lists its dimensions in the memory order of what was encoded; its strides may differ (compact() gives the
/// dense ones). It must not overlap itself, except in dimensions of stride 0. The floating codecs decode to any
/// floating type, whichever was encoded; `rotated` with a mask plane also to bool, which gives the mask alone; `mask`
/// to bool, bytes and floating types; `index` to i64, and to i32 up to a bound of 2^31; `copy` to the type it was
/// given.
///
/// Arbitrary bytes decode to some values, and never cause a read or write outside the buffers. Memory, streams and
/// errors as for encode().
void decode(const CodecSpec& spec, ConstByteSpan src, const TensorView& dst, Seed seed, const Stream& stream,
            Segments segments = {});

}  // namespace actzip
