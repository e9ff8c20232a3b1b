#include "layers/fused_activation.hpp"

#include <ATen/ops/empty_like.h>

#include <optional>

#include "base/convert.hpp"
#include "base/run_of_memory.hpp"

namespace actzip::torch::layers {

namespace {

/// Nothing unless the tensor is dense and aligned.
std::optional<Elements> elements_of(const at::Tensor& tensor) {
  const auto dtype = to_dtype(tensor.scalar_type());
  if (!dtype || !tensor.is_non_overlapping_and_dense() || !is_aligned(tensor)) return std::nullopt;
  return Elements{tensor.numel(), *dtype};
}

}  // namespace

at::Tensor activate_into(const Reservation& room, Activation activation, const at::Tensor& input) {
  if (!room.wants_bytes()) return {};
  const auto elements = elements_of(input);
  if (!elements || !can_fuse_activation(room.spec(), *elements, room.stream().device())) return {};
  const Writing writing(room, input.device());
  at::Tensor result = at::empty_like(input, input.options().requires_grad(false));
  encode_activated(room.spec(), activation, *elements, input.const_data_ptr(), result.mutable_data_ptr(), room.bytes(),
                   room.seed(), room.stream());
  return result;
}

}  // namespace actzip::torch::layers
