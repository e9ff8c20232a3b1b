#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sub.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/StringUtil.h>

#include "actzip/codec.hpp"
#include "actzip/dual.hpp"
#include "actzip/torch_parts.hpp"
#include "base/convert.hpp"
#include "base/memory.hpp"

namespace actzip::torch {

namespace {

/// Returns the spec for the tensor's feature maps.
Dual spec_for(const at::Tensor& tensor, const Dual& parameters) {
  if (tensor.layout() == c10::kStrided && tensor.dim() <= kMaxRank && to_dtype(tensor.scalar_type())) {
    if (const auto spec = dual_spec(parameters, to_shape(tensor))) return *spec;
  }
  throw Error(ErrorCode::invalid_view,
              c10::str("take_apart: a tensor of sizes ", tensor.sizes(), ", ", tensor.scalar_type(),
                       " (allowed: N,C,L, N,C,H,W or N,C,D,H,W, with C second or last in memory, more than one "
                       "position and a floating type)"));
}

}  // namespace

Parts take_apart(const at::Tensor& tensor, const Dual& parameters, std::uint64_t seed) {
  const Dual spec = spec_for(tensor, parameters);
  const at::Tensor source = tensor.detach();
  const c10::OptionalDeviceGuard guard(source.device());
  const Stream stream = current_stream(source.device());
  const Device device = stream.device();
  const Shape shape = to_shape(source);
  const DType dtype = *to_dtype(source.scalar_type());
  const std::size_t size = encoded_bytes(spec, dtype, shape);
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(size)}, source.options().dtype(c10::kByte));
  const auto span = [&] { return ByteSpan{static_cast<std::byte*>(bytes.mutable_data_ptr()), size, device}; };
  const auto decoded = [&](c10::ScalarType type) {
    at::Tensor result = at::empty_like(source, source.options().dtype(type));  // in the memory order of the source
    decode(spec, span(), {result.mutable_data_ptr(), *to_dtype(type), to_shape(result), device}, Seed(seed), stream);
    return result;
  };

  Parts parts;
  encode(spec, {source.const_data_ptr(), dtype, shape, device}, span(), Seed(seed), stream);
  parts.restored = decoded(source.scalar_type());
  const DualBytes of = dual_bytes(spec, source.numel());
  bytes.narrow(0, 0, static_cast<std::int64_t>(of.statistics)).zero_();  // leaves the low part alone
  parts.low = decoded(c10::kFloat);
  parts.high = at::sub(source.to(c10::kFloat), parts.low);
  parts.low_bytes = of.averages;
  parts.high_bytes = of.statistics + of.codes;
  return parts;
}

}  // namespace actzip::torch
