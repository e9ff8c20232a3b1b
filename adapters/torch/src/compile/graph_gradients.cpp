#include "compile/graph_gradients.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/where.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "actzip/activation.hpp"
#include "actzip/codec.hpp"
#include "base/batch_norm_kernels.hpp"
#include "base/convert.hpp"
#include "base/memory.hpp"
#include "base/run_of_memory.hpp"
#include "compile/graph_codes.hpp"
#include "operators/operator_table.hpp"

namespace actzip::torch {

namespace {

using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr std::string_view kGelu = "gelu_backward";

c10::OptionalDeviceGuard guard_of(const at::Tensor& tensor) {
  return c10::OptionalDeviceGuard(tensor.is_cuda() ? std::optional(tensor.device()) : std::nullopt);
}

std::optional<Activation> activation_of(std::string_view name, std::string_view approximate) {
  if (name == kGelu) return approximate == "tanh" ? Activation::gelu_tanh : Activation::gelu;
  for (const OperatorRow& row : operator_table()) {
    if (row.activation && row.encoded_backward == name) return row.activation;
  }
  return std::nullopt;
}

/// Calls torch's operator.
at::Tensor torch_gradient(std::string_view name, std::string_view approximate, const at::Tensor& gradient,
                          const at::Tensor& values) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(("aten::" + std::string(name)).c_str(), "");
  ::torch::jit::Stack stack{gradient, values};
  if (!approximate.empty()) stack.emplace_back(std::string(approximate));
  op.callBoxed(&stack);
  return stack.at(0).toTensor();
}

/// `gradient` has the sizes, strides and type of what was encoded.
at::Tensor activation_gradient(const at::Tensor& bytes, c10::string_view codec, const at::Tensor& seeds,
                               std::int64_t line, const at::Tensor& gradient, c10::string_view name,
                               c10::string_view approximate) {
  const GraphCode code{bytes, codec, 1, seeds, line};
  const auto guard = guard_of(bytes);
  const auto dtype = to_dtype(gradient.scalar_type());
  const auto activation = activation_of(name, approximate);
  const CodecSpec& spec = spec_of(codec);
  const Elements elements{gradient.numel(), dtype.value_or(DType::f64)};
  if (!activation || !can_fuse_activation(spec, elements, to_device(bytes.device()))) {
    return torch_gradient(name, approximate, gradient,
                          decoded(code, gradient.sizes(), gradient.strides(), gradient.scalar_type()));
  }
  const at::Tensor above = laid_out(gradient, gradient);
  at::Tensor below = at::empty_strided(gradient.sizes(), gradient.strides(), gradient.options());
  activation_backward(spec, *activation, elements, bytes_of(code), above.const_data_ptr(), below.mutable_data_ptr(),
                      seed_of(code), current_stream(bytes.device()));
  note_read(code);
  return below;
}

/// The mask of a ReLU, which is all there is of the codec `mask`, and lies at the end of others. Null if there is no ReLU.
const std::byte* plane_of(const std::optional<GraphCode>& relu, const ChannelRows& shape) {
  if (!relu) return nullptr;
  const ConstByteSpan bytes = bytes_of(*relu);
  return bytes.data + (bytes.size - sign_plane_bytes(shape));
}

ThreeTensors norm_gradients(const GraphCode& code, const std::optional<GraphCode>& relu, const at::Tensor& gradient,
                            const Normalization& norm, const ChannelRows& shape) {
  const at::Tensor below = at::empty_strided(gradient.sizes(), gradient.strides(), gradient.options());
  const Encoding encoding{spec_of(code.codec), bytes_of(code), seed_of(code), {}, {}};
  auto result = gradients_of({encoding, NormValues::input, shape, norm, plane_of(relu, shape), gradient, below});
  note_read(code);
  if (relu) note_read(*relu);
  return result;
}

/// `gradient` has the sizes, strides and type of what was encoded. If there are bytes of a ReLU's result, it is the
/// gradient of that.
ThreeTensors batch_norm_gradient(const at::Tensor& bytes, c10::string_view codec, const at::Tensor& seeds,
                                 std::int64_t line, const std::optional<at::Tensor>& relu_bytes,
                                 c10::string_view relu_codec, std::int64_t relu_line, const at::Tensor& gradient,
                                 const at::Tensor& weight, const at::Tensor& mean,
                                 const at::Tensor& inverse_deviation) {
  const GraphCode code{bytes, codec, 1, seeds, line};
  const auto relu = relu_bytes ? std::optional(GraphCode{*relu_bytes, relu_codec, 1, seeds, relu_line}) : std::nullopt;
  const auto guard = guard_of(bytes);
  const ChannelRows shape = rows_of(gradient);
  const bool fits = are_plain(weight, gradient) && are_plain(mean, gradient) && are_plain(inverse_deviation, gradient) &&
                    can_fuse_batch_norm(spec_of(codec), shape, to_device(bytes.device()));
  if (fits) {
    Normalization norm;
    norm.weight = floats(weight);
    norm.mean = floats(mean);
    norm.inverse_deviation = floats(inverse_deviation);
    return norm_gradients(code, relu, gradient, norm, shape);
  }
  at::Tensor above = gradient;
  if (relu) above = at::where(decoded(*relu, gradient.sizes(), gradient.strides(), at::kBool), gradient, 0);
  const at::Tensor values = decoded(code, gradient.sizes(), gradient.strides(), gradient.scalar_type());
  return at::native_batch_norm_backward(above, values, weight, {}, {}, mean, inverse_deviation, /*train=*/true,
                                        /*eps=*/0.0, std::array<bool, 3>{true, true, true});
}

}  // namespace

std::vector<ActivationGradient> activation_gradients() {
  std::vector<ActivationGradient> found{{std::string(kGelu), "none"}, {std::string(kGelu), "tanh"}};
  for (const OperatorRow& row : operator_table()) {
    if (row.activation) found.push_back({std::string(row.encoded_backward), ""});
  }
  return found;
}

void define_gradients(::torch::Library& library) {
  const std::vector<at::Tag> fixed{at::Tag::needs_fixed_stride_order, at::Tag::pt2_compliant_tag};
  library.def(
      "activation_backward(Tensor bytes, str codec, Tensor seeds, int line, Tensor gradient, str name, "
      "str approximate) -> Tensor",
      fixed);
  library.def(
      "batch_norm_backward(Tensor bytes, str codec, Tensor seeds, int line, Tensor? relu_bytes, str relu_codec, "
      "int relu_line, Tensor gradient, Tensor weight, Tensor mean, Tensor inverse_deviation) -> (Tensor, Tensor, Tensor)",
      fixed);
}

void implement_gradients(::torch::Library& kernels) {
  kernels.impl("activation_backward", &activation_gradient);
  kernels.impl("batch_norm_backward", &batch_norm_gradient);
}

}  // namespace actzip::torch
