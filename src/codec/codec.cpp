#include "actzip/codec.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <variant>

#include "actzip/registry.hpp"
#include "codec/job.hpp"
#include "codec/message.hpp"
#include "cpu/backend.hpp"
#include "cuda/backend.hpp"
#include "format/dual.hpp"
#include "format/segment_bits.hpp"

namespace actzip {

namespace {

using codec::fail;

/// Up to this many elements, no formula of the format exceeds 63 bits, whatever the codec.
constexpr std::int64_t kMaxElems = std::int64_t{1} << 56;
/// The same, counting the absent elements of ragged groups. Many short segments have many of those.
constexpr std::int64_t kMaxPaddedElems = kMaxElems * 2;

/// If segments have bits of their own, the start of a segment's codes is stored in 32 bits.
constexpr std::int64_t kMaxSegmentBitsWords = 0xffffffff;

constexpr std::size_t kEncodedAlignment = 16;
constexpr std::size_t kOverflowWordBytes = 4;

struct Layout {
  format::Geometry geometry;
  format::Sections sections;
};

/// The output types for an index whose bound is above 2^31.
constexpr DType kWideIntegers[] = {DType::i64};

// Each check takes the name of the public function for its message.

void check_encodes(std::string_view call, const CodecSpec& spec, DType dtype) {
  const std::span<const DType> allowed = codec_info(spec).encodes;
  if (std::ranges::find(allowed, dtype) != allowed.end()) return;
  fail(ErrorCode::unsupported_dtype, "{}: '{}' does not take {} (allowed: {})", call, to_string(spec), to_string(dtype),
       codec::list(allowed));
}

void check_decodes(std::string_view call, const CodecSpec& spec, DType dtype) {
  std::span<const DType> allowed = codec_info(spec).decodes;
  const auto* rotated = std::get_if<Rotated>(&spec);
  if (rotated != nullptr && !rotated->mask_plane) allowed = codec_info(spec).encodes;  // without bool: there is no mask
  const auto* index = std::get_if<Index>(&spec);
  const bool too_narrow = index != nullptr && dtype == DType::i32 && index->bound > std::int64_t{1} << 31;
  if (too_narrow) allowed = kWideIntegers;
  if (!too_narrow && std::ranges::find(allowed, dtype) != allowed.end()) return;
  fail(ErrorCode::unsupported_dtype, "{}: '{}' does not give {} (allowed: {})", call, to_string(spec), to_string(dtype),
       codec::list(allowed));
}

void check_counts(std::string_view call, std::int64_t elems, Segments segments) {
  if (elems < 0 || elems > kMaxElems) {
    fail(ErrorCode::invalid_view, "{}: {} elements (allowed: 0 to {})", call, elems, kMaxElems);
  }
  if (segments.count < 1 || elems % segments.count != 0) {
    fail(ErrorCode::invalid_segments, "{}: {} segments of {} elements (allowed: 1 or more, dividing the elements)",
         call, segments.count, elems);
  }
}

/// The sections if segments have bits of their own.
template <format::HasSegmentBits Codec>
format::Sections segment_bits_sections(std::string_view call, const Codec& codec, const format::Geometry& geometry,
                                       DType dtype, Segments segments) {
  constexpr int most = Codec::kMostBits;
  if (segments.total_bits < segments.count || (segments.total_bits - 1) / most >= segments.count) {
    fail(ErrorCode::invalid_segments, "{}: {} bits in total for {} segments of '{}' (allowed: 1 to {} for each, or 0)",
         call, segments.total_bits, segments.count, to_string(codec), most);
  }
  const format::Sections sections = format::sections(codec, geometry, dtype, segments.total_bits);
  if (sections.codes_used / 4 > kMaxSegmentBitsWords) {
    fail(ErrorCode::invalid_segments, "{}: {} words of codes in segments with bits of their own (allowed: up to {})",
         call, sections.codes_used / 4, kMaxSegmentBitsWords);
  }
  return sections;
}

/// Checks the numbers that determine the sizes, then computes the sizes.
Layout make_layout(std::string_view call, const CodecSpec& spec, DType dtype, std::int64_t elems, Segments segments) {
  check_counts(call, elems, segments);
  return std::visit(
      [&](const auto& codec) -> Layout {
        const format::Geometry geometry = format::geometry(codec, elems, segments);
        if (geometry.groups() > kMaxPaddedElems / geometry.group) {
          fail(ErrorCode::invalid_segments, "{}: {} segments make {} groups of {} elements (allowed: up to {} groups)",
               call, segments.count, geometry.groups(), geometry.group, kMaxPaddedElems / geometry.group);
        }
        if (!segments.has_own_bits()) return {geometry, format::sections(codec, geometry, dtype)};
        if constexpr (format::HasSegmentBits<std::decay_t<decltype(codec)>>) {
          return {geometry, segment_bits_sections(call, codec, geometry, dtype, segments)};
        }
        fail(ErrorCode::invalid_segments, "{}: '{}' has no bits for each segment (allowed: affine, rotated)", call,
             to_string(spec));
      },
      spec);
}

std::string device_text(Device device) {
  return device.kind == DeviceKind::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

void check_device(std::string_view call, std::string_view what, Device device, const Stream& stream) {
  if (device == stream.device()) return;
  fail(ErrorCode::device_mismatch, "{}: {} is on {}, the stream is on {} (allowed: the same device)", call, what,
       device_text(device), device_text(stream.device()));
}

void check_aligned(std::string_view call, std::string_view what, const void* address, std::size_t alignment) {
  const std::size_t excess = reinterpret_cast<std::uintptr_t>(address) % alignment;
  if (excess == 0) return;
  fail(ErrorCode::misaligned, "{}: {} starts {} bytes after a multiple of {} (allowed: a multiple)", call, what, excess,
       alignment);
}

void check_view(std::string_view call, std::string_view what, const ConstTensorView& view, std::int64_t elems,
                const Stream& stream) {
  check_device(call, what, view.device, stream);
  if (elems == 0) return;
  if (view.data == nullptr) {
    fail(ErrorCode::invalid_view, "{}: {} is null and has {} elements (allowed: null for no elements)", call, what,
         elems);
  }
  check_aligned(call, what, view.data, dtype_bytes(view.dtype));
}

/// An empty buffer has neither a device nor an address to check.
void check_buffer(std::string_view call, std::string_view what, ConstByteSpan bytes, std::size_t alignment,
                  const Stream& stream) {
  if (bytes.size == 0) return;
  check_device(call, what, bytes.device, stream);
  if (bytes.data == nullptr) {
    fail(ErrorCode::wrong_size, "{}: {} is null and has {} bytes (allowed: null for no bytes)", call, what, bytes.size);
  }
  check_aligned(call, what, bytes.data, alignment);
}

void check_encoded(std::string_view call, std::string_view what, ConstByteSpan bytes, const CodecSpec& spec,
                   DType dtype, const Layout& layout, const Stream& stream) {
  if (bytes.size != static_cast<std::size_t>(layout.sections.total)) {
    fail(ErrorCode::wrong_size, "{}: {} has {} bytes, '{}' of {} {} elements needs {}", call, what, bytes.size,
         to_string(spec), layout.geometry.elems, to_string(dtype), layout.sections.total);
  }
  check_buffer(call, what, bytes, kEncodedAlignment, stream);
}

std::size_t workspace_of(const CodecSpec& spec) { return std::holds_alternative<Index>(spec) ? kOverflowWordBytes : 0; }

void check_workspace(std::string_view call, ConstByteSpan workspace, const CodecSpec& spec, const Stream& stream) {
  if (workspace.size < workspace_of(spec)) {
    fail(ErrorCode::wrong_size, "{}: workspace has {} bytes, '{}' needs {}", call, workspace.size, to_string(spec),
         workspace_of(spec));
  }
  check_buffer(call, "workspace", workspace, kOverflowWordBytes, stream);
}

void check_segment_bits(std::string_view call, ConstByteSpan bits, const format::Sections& sections,
                        const Stream& stream) {
  if (bits.size != static_cast<std::size_t>(sections.table_used)) {
    fail(ErrorCode::wrong_size,
         "{}: segment_bits has {} bytes (allowed: {}, one for each segment that has bits of its own)", call, bits.size,
         sections.table_used);
  }
  check_buffer(call, "segment_bits", bits, 1, stream);
}

void check_seed(std::string_view call, Seed seed) {
  check_aligned(call, "the seed's address", seed.address(), alignof(std::uint64_t));
}

}  // namespace

std::size_t encoded_bytes(const CodecSpec& spec, DType dtype, std::int64_t elems, Segments segments) {
  codec::check_spec("encoded_bytes", spec);
  check_encodes("encoded_bytes", spec, dtype);
  return static_cast<std::size_t>(make_layout("encoded_bytes", spec, dtype, elems, segments).sections.total);
}

std::size_t encoded_bytes(const CodecSpec& spec, DType dtype, const Shape& shape, Segments segments) {
  return encoded_bytes(spec, dtype, unique_elems(shape), segments);
}

std::size_t workspace_bytes(const CodecSpec& spec, DType dtype, std::int64_t elems, Segments segments) {
  codec::check_spec("workspace_bytes", spec);
  check_encodes("workspace_bytes", spec, dtype);
  (void)make_layout("workspace_bytes", spec, dtype, elems, segments);
  return workspace_of(spec);
}

void encode(const CodecSpec& spec, const ConstTensorView& src, ByteSpan dst, Seed seed, const Stream& stream,
            Segments segments, ByteSpan workspace, ConstByteSpan segment_bits) {
  codec::check_spec("encode", spec);
  check_encodes("encode", spec, src.dtype);
  const format::ElementOrder order = format::element_order(src.shape);
  const Layout layout = make_layout("encode", spec, src.dtype, order.elems, segments);
  check_view("encode", "src", src, order.elems, stream);
  check_encoded("encode", "dst", dst, spec, src.dtype, layout, stream);
  check_workspace("encode", workspace, spec, stream);
  if (order.elems != 0) check_segment_bits("encode", segment_bits, layout.sections, stream);
  check_seed("encode", seed);
  if (order.elems == 0) return;

  const codec::EncodeJob job{.src = {src.data, src.dtype, order},
                             .geometry = layout.geometry,
                             .sections = layout.sections,
                             .dst = dst.data,
                             .workspace = workspace.data,
                             .segment_bits = segment_bits.data,
                             .seed = seed,
                             .stream = &stream};
  std::visit(
      [&](const auto& codec) {
        if (stream.device().kind == DeviceKind::cuda) return cuda::encode(codec, job);
        cpu::encode(codec, job);
      },
      spec);
}

void decode(const CodecSpec& spec, ConstByteSpan src, const TensorView& dst, Seed seed, const Stream& stream,
            Segments segments) {
  codec::check_spec("decode", spec);
  check_decodes("decode", spec, dst.dtype);
  const format::ElementOrder order = format::element_order(dst.shape);
  if (format::overlaps_itself(order)) {
    fail(ErrorCode::invalid_view, "decode: dst overlaps itself: two indices name one element (allowed: distinct ones)");
  }
  const Layout layout = make_layout("decode", spec, dst.dtype, order.elems, segments);
  check_view("decode", "dst", dst, order.elems, stream);
  check_encoded("decode", "src", src, spec, dst.dtype, layout, stream);
  check_seed("decode", seed);
  if (order.elems == 0) return;

  const codec::DecodeJob job{.src = src.data,
                             .dst = {dst.data, dst.dtype, order},
                             .geometry = layout.geometry,
                             .sections = layout.sections,
                             .seed = seed,
                             .stream = &stream};
  std::visit(
      [&](const auto& codec) {
        if (stream.device().kind == DeviceKind::cuda) return cuda::decode(codec, job);
        cpu::decode(codec, job);
      },
      spec);
}

}  // namespace actzip
