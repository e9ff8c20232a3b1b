#include "layers/fused_batch_norm.hpp"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>

#include <utility>
#include <variant>

#include "base/convert.hpp"
#include "base/memory.hpp"
#include "base/run_of_memory.hpp"
#include "base/batch_norm_kernels.hpp"
#include "layers/recipe.hpp"

namespace actzip::torch::layers {

namespace {

/// The bits that kernels read; null without a mask.
const std::byte* plane_of(const std::optional<Encoding>& mask) { return mask ? mask->bytes.data : nullptr; }

/// Nothing if the mask is not kept as one bit per element.
std::optional<Encoding> signs_of(const Packed& mask) {
  if (!mask.is_encoded()) return std::nullopt;
  Encoding encoding = mask.encoding();
  const auto* spec = std::get_if<Mask>(&encoding.spec);
  return spec != nullptr && *spec == Mask{} ? std::optional(std::move(encoding)) : std::nullopt;
}

/// The encodings that kernels read.
struct Encodings {
  Encoding input;
  std::optional<Encoding> mask;
};

std::optional<Encodings> encodings(const FusedNorm& norm, const Packed& input, const std::optional<Packed>& mask) {
  if (!input.is_encoded()) return std::nullopt;
  Encodings found{input.encoding(), mask ? signs_of(*mask) : std::nullopt};
  const bool fits = found.input.segments == Segments{} &&
                    can_fuse_batch_norm(found.input.spec, norm.shape, to_device(norm.numbers.device()));
  return fits && (!mask || found.mask) ? std::optional(std::move(found)) : std::nullopt;
}

}  // namespace

Normalization FusedNorm::normalization() const { return {floats(numbers), shape.channels}; }

at::Tensor FusedNorm::result(const Packed& input, const std::optional<Packed>& mask) const {
  const c10::OptionalDeviceGuard guard(input.device());
  const auto found = encodings(*this, input, mask);
  if (!found) return {};
  const at::Tensor values = input.empty_restored();
  decode_normalized(found->input.spec, shape, found->input.bytes, normalization(), values.mutable_data_ptr(),
                    plane_of(found->mask), found->input.seed, current_stream(values.device()));
  return values;
}

at::Tensor FusedNorm::result(const at::Tensor& normal) const {
  const auto along = [&](int row) { return along_channels(numbers.select(0, row), normal.dim()); };
  return at::addcmul(along(1), normal, along(0));
}

std::optional<Normalized> normalize_into(const Reservation& room, const at::Tensor& input, const NormWeights& affine,
                                         const Running& running, double eps, bool with_signs) {
  if (!room.wants_bytes()) return std::nullopt;
  const ChannelRows shape = rows_of(input);
  const bool plain = are_plain(affine.weight, input) && are_plain(affine.bias, input) &&
                     are_plain(running.mean, input) && are_plain(running.var, input);
  if (!plain || !can_fuse_batch_norm(room.spec(), shape, room.stream().device())) return std::nullopt;
  const Writing writing(room, input.device());
  const at::TensorOptions plain_options = input.options().requires_grad(false);
  Normalized made;
  made.norm = {shape, at::empty({4, shape.channels}, plain_options.dtype(at::kFloat))};
  const at::Tensor workspace = workspace_for(shape, plain_options);
  measure_batch(room.spec(), shape, input.const_data_ptr(),
                {.weight = floats(affine.weight),
                 .bias = floats(affine.bias),
                 .running_mean = mutable_floats(running.mean),
                 .running_variance = mutable_floats(running.var),
                 .momentum = static_cast<float>(running.momentum),
                 .epsilon = static_cast<float>(eps)},
                mutable_floats(made.norm.numbers), bytes_of(workspace), room.stream());
  for (const at::Tensor& statistics : {running.mean, running.var}) {
    if (statistics.defined() && !statistics.is_inference()) statistics.unsafeGetTensorImpl()->bump_version();
  }
  made.result = at::empty_like(input, plain_options);
  if (with_signs) {
    made.signs = at::empty({static_cast<std::int64_t>(sign_plane_bytes(shape))}, plain_options.dtype(at::kByte));
  }
  encode_normalized(room.spec(), shape, input.const_data_ptr(), made.norm.normalization(),
                    made.result.mutable_data_ptr(), room.bytes(), with_signs ? bytes_of(made.signs).data : nullptr,
                    room.seed(), room.stream());
  return made;
}

FusedBatchNormNode::FusedBatchNormNode(const at::Tensor& like, const NormWeights& affine, double eps)
    : LayerNode("ActzipBatchNorm"),
      weight_(affine.weight),
      sizes_(like.sizes().vec()),
      strides_(like.strides().vec()),
      options_(like.options().requires_grad(false)),
      eps_(eps) {}

FusedBatchNormNode::FusedBatchNormNode(const FusedBatchNormNode& norm_node)
    : LayerNode("ActzipBatchNormRelu"),
      input(norm_node.input),
      norm(norm_node.norm),
      relu_hint(norm_node.relu_hint),
      weight_(norm_node.weight_),
      sizes_(norm_node.sizes_),
      strides_(norm_node.strides_),
      options_(norm_node.options_),
      eps_(norm_node.eps_) {}

variable_list FusedBatchNormNode::backward(const at::Tensor& gradient) {
  const auto found = is_trying() ? std::nullopt : encodings(norm, input, mask);
  if (!found) return by_torch(gradient);
  const c10::OptionalDeviceGuard guard(norm.numbers.device());
  const at::Tensor from_above = laid_out(gradient, sizes_, strides_, options_);
  const at::Tensor for_input = at::empty_strided(sizes_, strides_, options_);
  auto [for_x, for_weight, for_bias] = gradients_of({found->input, NormValues::normal, norm.shape, norm.normalization(),
                                                     plane_of(found->mask), from_above, for_input});
  (void)weight_.get();  // throws if it was modified
  return {std::move(for_x), needs(1) ? std::move(for_weight) : at::Tensor(),
          needs(2) ? std::move(for_bias) : at::Tensor()};
}

/// Used while noise is tried, or if kernels do not support how the input is kept.
variable_list FusedBatchNormNode::by_torch(const at::Tensor& gradient) const {
  const at::Tensor from_above = mask ? at::threshold_backward(gradient, mask->unpack(), 0) : gradient;
  const at::Tensor rstd = norm.numbers.select(0, 3);
  auto [for_normal, for_weight, for_bias] = at::native_batch_norm_backward(
      from_above, input.unpack_as_tried(), weight_.get(), {}, {}, at::zeros_like(rstd), at::ones_like(rstd),
      /*train=*/true, eps_, {needs(0), needs(1), needs(2)});
  if (for_normal.defined()) for_normal.mul_(along_channels(rstd, for_normal.dim()));
  return {std::move(for_normal), std::move(for_weight), std::move(for_bias)};
}

void FusedBatchNormNode::release() {
  input = {};
  norm = {};
  mask.reset();
  signs = at::Tensor();
  weight_ = Borrowed();
}

decltype(make_node<FusedBatchNormNode>(std::declval<const FusedBatchNormNode&>())) joined_with_relu(
    const at::Tensor& input) {
  const auto node = input.grad_fn();
  auto* norm = dynamic_cast<FusedBatchNormNode*>(node.get());
  const bool is_watched = norm != nullptr && !(norm->pre_hooks().empty() && norm->post_hooks().empty() &&
                                               norm->tensor_pre_hooks().empty() && norm->retains_grad_hooks().empty());
  if (norm == nullptr || is_watched || norm->mask || input.is_view() || !recipe_of(input)) return nullptr;
  auto joined = make_node<FusedBatchNormNode>(std::as_const(*norm));
  joined->set_next_edges(::torch::autograd::edge_list(norm->next_edges()));
  joined->signs = std::exchange(norm->signs, {});
  if (joined->relu_hint) joined->relu_hint->follows.store(true, std::memory_order_relaxed);
  return joined;
}

bool copy_signs_into(const Reservation& room, const at::Tensor& signs) {
  if (!room.wants_bytes() || !signs.defined()) return false;
  if (room.spec() != CodecSpec(Mask{}) || room.bytes().size != signs.nbytes()) return false;
  const Writing writing(room, signs.device());
  at::from_blob(room.bytes().data, {signs.numel()}, signs.options()).copy_(signs);
  return true;
}

}  // namespace actzip::torch::layers
