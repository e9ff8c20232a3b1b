// Each operator is computed from the encoded bytes if a kernel of the core supports the call, otherwise by torch's own
// operator from the values.
#include "encoded/encoded_backward.hpp"

#include <ATen/ops/cudnn_batch_norm_backward.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_dropout_backward.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/threshold_backward.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

#include "actzip/activation.hpp"
#include "base/convert.hpp"
#include "base/memory.hpp"
#include "base/run_of_memory.hpp"
#include "base/batch_norm_kernels.hpp"
#include "encoded/encoded_tensor.hpp"
#include "operators/operator_table.hpp"

namespace actzip::torch {

namespace {

using OptionalTensor = std::optional<at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// A gradient that is computed element by element, in the memory order of the saved tensor.
struct Gradient {
  Encoding encoding;
  float scale;  ///< the saved tensor is this multiple of the encoded values
  Elements elements;
  at::Tensor above;
  at::Tensor below;  ///< to be written
  Stream stream;
};

/// Whether a kernel that reads the bytes of `saved` can read `gradient`, too. If not, torch's operator raises the
/// error.
bool is_readable(const at::Tensor& gradient, const at::Tensor& saved) {
  return gradient.layout() == at::kStrided && gradient.has_storage() && gradient.device() == saved.device() &&
         gradient.sizes() == saved.sizes() && encoded_in(gradient) == nullptr;
}

/// Returns nothing if `saved` is not encoded, `gradient` is not readable along with it, or fits(encoding, elements) is
/// false.
template <class Fits>
std::optional<Gradient> gradient_of(const at::Tensor& gradient, const at::Tensor& saved, Fits fits) {
  const Encoded* kept = encoded_in(saved);
  const auto dtype = to_dtype(gradient.scalar_type());
  if (kept == nullptr || !dtype || !is_readable(gradient, saved)) return {};
  Encoding encoding = kept->packed.encoding();
  const Elements elements{saved.numel(), *dtype};
  if (encoding.segments != Segments{} || !fits(encoding, elements)) return {};
  const at::Tensor below = kept->packed.empty_restored(gradient.scalar_type());
  return Gradient{.encoding = std::move(encoding),
                  .scale = static_cast<float>(kept->scale),
                  .elements = elements,
                  .above = laid_out(gradient, below),
                  .below = below,
                  .stream = current_stream(below.device())};
}

/// The same, if one bit per element was kept: a boolean, or whether a number is above 0.
std::optional<Gradient> masked(const at::Tensor& gradient, const at::Tensor& saved) {
  return gradient_of(gradient, saved, [&](const Encoding& encoding, const Elements& elements) {
    const auto* mask = std::get_if<Mask>(&encoding.spec);
    const bool is_known = mask != nullptr && (saved.scalar_type() == at::kBool || *mask == Mask{});
    return is_known && can_fuse_mask(elements, encoding.bytes.device);
  });
}

/// The same, if values of the gradient's type were kept.
std::optional<Gradient> valued(const at::Tensor& gradient, const at::Tensor& saved) {
  if (gradient.scalar_type() != saved.scalar_type()) return {};
  return gradient_of(gradient, saved, [](const Encoding& encoding, const Elements& elements) {
    return can_fuse_activation(encoding.spec, elements, encoding.bytes.device);
  });
}

/// Whether the tensor stands for a multiple of what was kept, which only products support.
bool is_scaled(const at::Tensor& tensor) {
  const Encoded* kept = encoded_in(tensor);
  return kept != nullptr && kept->scale != 1.0;
}

at::Tensor threshold_backward(const at::Tensor& gradient, const at::Tensor& self, const at::Scalar& threshold) {
  const c10::OptionalDeviceGuard guard(self.device());
  const bool fits = threshold.equal(0) && !is_scaled(self) && gradient.scalar_type() == self.scalar_type();
  const auto found = fits ? masked(gradient, self) : std::nullopt;
  if (!found) return at::threshold_backward(decoded(gradient), decoded(self), threshold);
  relu_backward(found->elements, found->encoding.bytes, found->above.const_data_ptr(), found->below.mutable_data_ptr(),
                found->stream);
  return found->below;
}

at::Tensor native_dropout_backward(const at::Tensor& gradient, const at::Tensor& mask, double scale) {
  const c10::OptionalDeviceGuard guard(mask.device());
  const auto found = masked(gradient, mask);
  if (!found) return at::native_dropout_backward(decoded(gradient), decoded(mask), scale);
  dropout_backward(found->elements, found->encoding.bytes, static_cast<float>(scale), found->above.const_data_ptr(),
                   found->below.mutable_data_ptr(), found->stream);
  return found->below;
}

/// Undefined if no kernel supports the call.
at::Tensor activation_gradient(Activation activation, const at::Tensor& gradient, const at::Tensor& self) {
  const c10::OptionalDeviceGuard guard(self.device());
  const auto found = is_scaled(self) ? std::nullopt : valued(gradient, self);
  if (!found) return {};
  activation_backward(found->encoding.spec, activation, found->elements, found->encoding.bytes,
                      found->above.const_data_ptr(), found->below.mutable_data_ptr(), found->encoding.seed,
                      found->stream);
  return found->below;
}

at::Tensor gelu_backward(const at::Tensor& gradient, const at::Tensor& self, std::string_view approximate) {
  const auto activation = approximate == "tanh" ? Activation::gelu_tanh : Activation::gelu;
  at::Tensor result = activation_gradient(activation, gradient, self);
  return result.defined() ? result : at::gelu_backward(decoded(gradient), decoded(self), approximate);
}

/// For the operators of all rows with an activation.
class ActivationBackward final : public c10::OperatorKernel {
 public:
  explicit ActivationBackward(Activation activation) : activation_(activation) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, ::torch::jit::Stack* stack) {
    const at::Tensor& gradient = ::torch::jit::peek(*stack, 0, kArguments).toTensor();
    const at::Tensor& self = ::torch::jit::peek(*stack, 1, kArguments).toTensor();
    at::Tensor result = activation_gradient(activation_, gradient, self);
    if (!result.defined()) return decode_and_call(op, stack);
    ::torch::jit::drop(*stack, kArguments);
    ::torch::jit::push(*stack, std::move(result));
  }

 private:
  static constexpr std::size_t kArguments = 2;
  Activation activation_;
};

at::Tensor mul(const at::Tensor& self, const at::Tensor& other) {
  const c10::OptionalDeviceGuard guard(self.device());
  const auto found = valued(self, other);
  if (!found) return at::mul(decoded(self), decoded(other));
  product_backward(found->encoding.spec, found->elements, found->encoding.bytes, found->scale,
                   found->above.const_data_ptr(), found->below.mutable_data_ptr(), found->encoding.seed, found->stream);
  return found->below;
}

/// The gradient of a square computes its base to the power of 1, times 2, times the gradient from above.
at::Tensor pow(const at::Tensor& self, const at::Scalar& exponent) {
  const Encoded* kept = encoded_in(self);
  const bool is_same = kept != nullptr && self.is_floating_point() && !exponent.isComplex() && exponent.equal(1);
  return is_same ? encoded_tensor(*kept) : at::pow(decoded(self), exponent);
}

at::Tensor mul_by_number(const at::Tensor& self, const at::Scalar& number) {
  const Encoded* kept = encoded_in(self);
  if (kept == nullptr || !self.is_floating_point() || number.isComplex()) return at::mul(decoded(self), number);
  return encoded_tensor({kept->packed, kept->scale * number.toDouble()});
}

/// What torch's batch norm saves in addition to its input: one number per channel.
struct BatchStatistics {
  at::Tensor mean;
  at::Tensor inverse_deviation;
};

/// Returns the gradients of input, weight and bias in training. Nothing if kernels do not support what was kept of the
/// input, or channels are not adjacent.
std::optional<ThreeTensors> batch_norm_gradients(const at::Tensor& gradient, const at::Tensor& input,
                                                 const at::Tensor& weight, const BatchStatistics& statistics) {
  const Encoded* kept = encoded_in(input);
  if (kept == nullptr || is_scaled(input) || !is_readable(gradient, input)) return std::nullopt;
  if (!statistics.mean.defined() || !statistics.inverse_deviation.defined()) return std::nullopt;
  const c10::OptionalDeviceGuard guard(input.device());
  const at::Tensor for_input = kept->packed.empty_restored();
  const ChannelRows shape = rows_of(for_input);
  const Encoding encoding = kept->packed.encoding();
  const bool fits = are_plain(weight, for_input) && are_plain(statistics.mean, for_input) &&
                    are_plain(statistics.inverse_deviation, for_input) && encoding.segments == Segments{} &&
                    can_fuse_batch_norm(encoding.spec, shape, encoding.bytes.device);
  if (!fits) return std::nullopt;
  Normalization norm;
  norm.weight = floats(weight);
  norm.mean = floats(statistics.mean);
  norm.inverse_deviation = floats(statistics.inverse_deviation);
  return gradients_of(
      {encoding, NormValues::input, shape, norm, /*positive=*/nullptr, laid_out(gradient, for_input), for_input});
}

ThreeTensors native_batch_norm_backward(const at::Tensor& gradient, const at::Tensor& input,
                                        const OptionalTensor& weight, const OptionalTensor& running_mean,
                                        const OptionalTensor& running_var, const OptionalTensor& mean,
                                        const OptionalTensor& rstd, bool train, double eps,
                                        std::array<bool, 3> needed) {
  const BatchStatistics statistics{mean.value_or(at::Tensor()), rstd.value_or(at::Tensor())};
  auto found = train ? batch_norm_gradients(gradient, input, weight.value_or(at::Tensor()), statistics) : std::nullopt;
  if (!found) {
    return at::native_batch_norm_backward(decoded(gradient), decoded(input), weight, running_mean, running_var, mean,
                                          rstd, train, eps, needed);
  }
  auto& [for_input, for_weight, for_bias] = *found;
  if (!needed[0]) for_input.reset();
  if (!needed[1]) for_weight.reset();
  if (!needed[2]) for_bias.reset();
  return *std::move(found);
}

ThreeTensors cudnn_batch_norm_backward(const at::Tensor& input, const at::Tensor& gradient, const at::Tensor& weight,
                                       const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                       const OptionalTensor& mean, const OptionalTensor& rstd, double eps,
                                       const at::Tensor& reserve) {
  const BatchStatistics statistics{mean.value_or(at::Tensor()), rstd.value_or(at::Tensor())};
  auto found = batch_norm_gradients(gradient, input, weight, statistics);
  if (found) return *std::move(found);
  return at::cudnn_batch_norm_backward(decoded(input), decoded(gradient), weight, running_mean, running_var, mean, rstd,
                                       eps, decoded(reserve));
}

}  // namespace

bool calls_known_operator(const ::torch::autograd::Node& node) {
  const OperatorRow* const row = find_node(node);
  return row != nullptr && !row->encoded_backward.empty();
}

void add_backward_kernels(::torch::Library& library) {
  library.impl("threshold_backward", &threshold_backward);
  library.impl("native_dropout_backward", &native_dropout_backward);
  library.impl("gelu_backward", &gelu_backward);
  library.impl("mul.Tensor", &mul);
  library.impl("mul.Scalar", &mul_by_number);
  library.impl("pow.Tensor_Scalar", &pow);
  library.impl("native_batch_norm_backward", &native_batch_norm_backward);
  library.impl("cudnn_batch_norm_backward", &cudnn_batch_norm_backward);
  for (const OperatorRow& row : operator_table()) {
    if (!row.activation) continue;
    auto kernel = std::make_unique<ActivationBackward>(*row.activation);
    library.impl(std::string(row.encoded_backward).c_str(),
                 ::torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
  }
}

}  // namespace actzip::torch
