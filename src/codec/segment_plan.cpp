#include "actzip/segment_plan.hpp"

#include <algorithm>
#include <string_view>
#include <variant>

#include "actzip/registry.hpp"
#include "codec/job.hpp"
#include "codec/message.hpp"
#include "cpu/backend.hpp"
#include "cuda/backend.hpp"
#include "format/segment_bits.hpp"

namespace actzip {

namespace {

using codec::fail;

constexpr std::size_t kNumber = sizeof(float);

void check_span(std::string_view call, std::string_view what, ConstByteSpan bytes, std::size_t size,
                std::size_t alignment, const Stream& stream) {
  if (bytes.size != size || bytes.data == nullptr) {
    fail(ErrorCode::wrong_size, "{}: {} has {} bytes (allowed: {})", call, what, bytes.data == nullptr ? 0 : bytes.size,
         size);
  }
  if (bytes.device != stream.device()) {
    fail(ErrorCode::device_mismatch, "{}: {} and the stream are on different devices (allowed: the same)", call, what);
  }
  if (reinterpret_cast<std::uintptr_t>(bytes.data) % alignment != 0) {
    fail(ErrorCode::misaligned, "{}: {} does not start at a multiple of {} bytes", call, what, alignment);
  }
}

template <class Codec>
math::BitSteps steps_of(Codec codec, Bits least) {
  math::BitSteps steps{.least = least.value, .most = Codec::kMostBits};
  if (steps.least < 1 || steps.least > steps.most) {
    fail(ErrorCode::invalid_segments, "plan_segments: at least {} bits of '{}' (allowed: 1 to {})", steps.least,
         to_string(codec), steps.most);
  }
  for (codec.bits = Bits(1); codec.bits.value <= steps.most; ++codec.bits.value) {
    steps.error[codec.bits.value] = static_cast<float>(expected_error(codec));
  }
  float before = steps.error[1];  // bits are bought in order, so none may save more than the one before
  for (int bits = 1; bits < steps.most; ++bits) {
    before = steps.saved[bits] = std::clamp(steps.error[bits] - steps.error[bits + 1], 0.0F, before);
  }
  return steps;
}

math::BitSteps steps_of(const CodecSpec& spec, Bits least) {
  return std::visit(
      [&]<class Codec>(const Codec& codec) -> math::BitSteps {
        if constexpr (format::HasSegmentBits<Codec>) return steps_of(codec, least);
        fail(ErrorCode::invalid_spec, "plan_segments: '{}' has no bits for each segment (allowed: affine, rotated)",
             to_string(spec));
      },
      spec);
}

}  // namespace

void weigh_segments(const ConstTensorView& src, ConstByteSpan factors, ByteSpan weights, const Stream& stream) {
  constexpr const char* kCall = "weigh_segments";
  if (src.dtype != DType::f32 && src.dtype != DType::f16 && src.dtype != DType::bf16) {
    fail(ErrorCode::unsupported_dtype, "{}: {} (allowed: f32, f16, bf16)", kCall, to_string(src.dtype));
  }
  const format::ElementOrder order = format::element_order(src.shape);
  if (!order.dense() || src.data == nullptr) {
    fail(ErrorCode::invalid_view, "{}: a view with gaps, or null (allowed: a dense one)", kCall);
  }
  const auto count = static_cast<std::int64_t>(weights.size / kNumber);
  if (count < 1 || order.elems % count != 0 || order.elems / count < math::GroupSample::kGroup) {
    fail(ErrorCode::invalid_segments, "{}: {} segments of {} elements (allowed: 1 or more that divide them, of {})",
         kCall, count, order.elems, math::GroupSample::kGroup);
  }
  if (src.device != stream.device()) {
    fail(ErrorCode::device_mismatch, "{}: src and the stream are on different devices (allowed: the same)", kCall);
  }
  check_span(kCall, "weights", weights, static_cast<std::size_t>(count) * kNumber, kNumber, stream);
  if (factors.size != 0) check_span(kCall, "factors", factors, weights.size, kNumber, stream);
  const codec::WeighJob job{.src = src.data,
                            .dtype = src.dtype,
                            .count = count,
                            .segment_elems = order.elems / count,
                            .factors = factors.size != 0 ? reinterpret_cast<const float*>(factors.data) : nullptr,
                            .weights = reinterpret_cast<float*>(weights.data),
                            .stream = &stream};
  if (stream.device().kind == DeviceKind::cuda) return cuda::weigh_segments(job);
  cpu::weigh_segments(job);
}

void plan_segments(const CodecSpec& spec, ConstByteSpan weights, Segments segments, ByteSpan table,
                   SegmentSummary* summary, const Stream& stream, Bits least) {
  constexpr const char* kCall = "plan_segments";
  codec::check_spec(kCall, spec);
  const math::BitSteps steps = steps_of(spec, least);
  if (segments.count < 1 || segments.count > kMostPlannedSegments) {
    fail(ErrorCode::invalid_segments, "{}: {} segments (allowed: 1 to {})", kCall, segments.count,
         kMostPlannedSegments);
  }
  if (segments.total_bits < segments.count * steps.least || segments.total_bits > segments.count * steps.most) {
    fail(ErrorCode::invalid_segments, "{}: {} bits in total for {} segments of '{}' (allowed: {} to {} for each)",
         kCall, segments.total_bits, segments.count, to_string(spec), steps.least, steps.most);
  }
  const auto count = static_cast<std::size_t>(segments.count);
  check_span(kCall, "weights", weights, count * kNumber, kNumber, stream);
  check_span(kCall, "table", table, count, 1, stream);
  const codec::SegmentPlanJob job{.weights = reinterpret_cast<const float*>(weights.data),
                                  .count = segments.count,
                                  .total_bits = segments.total_bits,
                                  .steps = steps,
                                  .table = table.data,
                                  .summary = summary,
                                  .stream = &stream};
  if (stream.device().kind == DeviceKind::cuda) return cuda::plan_segments(job);
  cpu::plan_segments(job);
}

}  // namespace actzip
