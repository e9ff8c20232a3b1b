// LibTorch's modules as layers that compress what their own backward needs. Options, parameters and results are the
// same. Layers that were given no session use that of the scope on their thread or, outside of scopes,
// default_session().
//
//   namespace nn = actzip::torch::nn;
//   torch::nn::Sequential net(nn::Conv2d(3, 16, 3), nn::BatchNorm2d(16), nn::ReLU(), nn::Conv2d(16, 16, 3));
//   actzip::torch::Session session;
//   nn::keep_with(*net, session);                      // once: names the layers by their paths
//   actzip::torch::begin_step(session);                // before each forward: a report covers one step
//   net->forward(x).sum().backward();
//
// clone() is inherited from LibTorch and returns LibTorch's own layers.
#pragma once

#include <torch/nn/modules.h>

#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "actzip/torch_layers.hpp"

namespace actzip::torch::nn {

/// The base class of all layers here.
class Compressed {
 public:
  void keep_with(std::string name, const Session& session, const LayerOptions& options = {}) {
    layer_ = Layer(std::move(name), session, options);
  }

 protected:
  ~Compressed() = default;
  [[nodiscard]] const Layer& layer() const noexcept { return layer_; }

 private:
  Layer layer_;
};

/// Gives `session` to all layers of `model`, and names each by its path in the model.
inline void keep_with(::torch::nn::Module& model, const Session& session, const LayerOptions& options = {}) {
  for (const auto& item : model.named_modules("", /*include_self=*/true)) {
    if (auto* layer = dynamic_cast<Compressed*>(item.value().get())) layer->keep_with(item.key(), session, options);
  }
}

namespace detail {

template <std::size_t D>
std::vector<std::int64_t> numbers(const ::torch::ExpandingArray<D>& array) {
  return {array->begin(), array->end()};
}

template <class Base, std::size_t D>
class ConvImpl : public Base, public Compressed {
 public:
  using Base::Base;
  at::Tensor forward(const at::Tensor& input) {
    const auto& options = this->options;
    const auto* padding = std::get_if<::torch::ExpandingArray<D>>(&options.padding());
    const bool pads_zeros = std::holds_alternative<::torch::enumtype::kZeros>(options.padding_mode());
    if (padding == nullptr || !pads_zeros) return Base::forward(input);
    auto result = layers::convolution(layer(), input, this->weight, this->bias,
                                      {.stride = numbers(options.stride()),
                                       .padding = numbers(*padding),
                                       .dilation = numbers(options.dilation()),
                                       .output_padding = numbers(options.output_padding()),
                                       .transposed = false,
                                       .groups = options.groups()});
    return result ? *result : Base::forward(input);
  }
};

template <class Base, std::size_t D>
class ConvTransposeImpl : public Base, public Compressed {
 public:
  using Base::Base;
  at::Tensor forward(const at::Tensor& input) {
    const auto& options = this->options;
    auto result = layers::convolution(layer(), input, this->weight, this->bias,
                                      {.stride = numbers(options.stride()),
                                       .padding = numbers(std::get<::torch::ExpandingArray<D>>(options.padding())),
                                       .dilation = numbers(options.dilation()),
                                       .output_padding = numbers(options.output_padding()),
                                       .transposed = true,
                                       .groups = options.groups()});
    return result ? *result : Base::forward(input);
  }
};

template <class Base>
class BatchNormImpl : public Base, public Compressed {
 public:
  using Base::Base;
  at::Tensor forward(const at::Tensor& input) {
    this->_check_input_dim(input);
    const bool training = this->is_training();
    const bool tracks = this->options.track_running_stats();
    const bool counts = training && tracks && this->num_batches_tracked.defined();
    double factor = this->options.momentum().value_or(0.0);
    if (!this->options.momentum() && counts) factor = 1.0 / (this->num_batches_tracked.template item<double>() + 1.0);
    const bool uses_running = !training || tracks;
    const layers::Running running{uses_running ? this->running_mean : at::Tensor(),
                                  uses_running ? this->running_var : at::Tensor(), factor};
    const bool by_batch = training || !this->running_mean.defined();
    auto result =
        layers::batch_norm(layer(), input, {this->weight, this->bias}, running, by_batch, this->options.eps());
    if (!result) return Base::forward(input);
    if (counts) this->num_batches_tracked.add_(1);
    return *result;
  }
};

template <class Base, std::size_t D>
class MaxPoolImpl : public Base, public Compressed {
 public:
  using Base::Base;
  at::Tensor forward(const at::Tensor& input) {
    const auto& options = this->options;
    auto result = layers::max_pool(layer(), input,
                                   {.kernel = numbers(options.kernel_size()),
                                    .stride = numbers(options.stride()),
                                    .padding = numbers(options.padding()),
                                    .dilation = numbers(options.dilation()),
                                    .ceil_mode = options.ceil_mode()});
    return result ? *result : Base::forward(input);
  }
};

template <class Base, std::size_t D>
class AvgPoolImpl : public Base, public Compressed {
 public:
  using Base::Base;
  at::Tensor forward(const at::Tensor& input) {
    const auto& options = this->options;
    layers::Pool pool{.kernel = numbers(options.kernel_size()),
                      .stride = numbers(options.stride()),
                      .padding = numbers(options.padding()),
                      .dilation = std::vector<std::int64_t>(D, 1),
                      .ceil_mode = options.ceil_mode(),
                      .count_include_pad = options.count_include_pad()};
    if constexpr (D > 1) pool.divisor_override = options.divisor_override();
    auto result = layers::avg_pool(layer(), input, pool);
    return result ? *result : Base::forward(input);
  }
};

}  // namespace detail

class LinearImpl : public ::torch::nn::LinearImpl, public Compressed {
 public:
  using ::torch::nn::LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& input) {
    auto result = layers::linear(layer(), input, weight, bias);
    return result ? *result : ::torch::nn::LinearImpl::forward(input);
  }
};

class EmbeddingImpl : public ::torch::nn::EmbeddingImpl, public Compressed {
 public:
  using ::torch::nn::EmbeddingImpl::EmbeddingImpl;
  at::Tensor forward(const at::Tensor& indices) {
    if (options.max_norm()) return ::torch::nn::EmbeddingImpl::forward(indices);
    auto result = layers::embedding(layer(), weight, indices, options.padding_idx().value_or(-1),
                                    options.scale_grad_by_freq(), options.sparse());
    return result ? *result : ::torch::nn::EmbeddingImpl::forward(indices);
  }
};

class LayerNormImpl : public ::torch::nn::LayerNormImpl, public Compressed {
 public:
  using ::torch::nn::LayerNormImpl::LayerNormImpl;
  at::Tensor forward(const at::Tensor& input) {
    auto result = layers::layer_norm(layer(), input, options.normalized_shape(), {weight, bias}, options.eps());
    return result ? *result : ::torch::nn::LayerNormImpl::forward(input);
  }
};

class GroupNormImpl : public ::torch::nn::GroupNormImpl, public Compressed {
 public:
  using ::torch::nn::GroupNormImpl::GroupNormImpl;
  at::Tensor forward(const at::Tensor& input) {
    auto result = layers::group_norm(layer(), input, options.num_groups(), {weight, bias}, options.eps());
    return result ? *result : ::torch::nn::GroupNormImpl::forward(input);
  }
};

class ReLUImpl : public ::torch::nn::ReLUImpl, public Compressed {
 public:
  using ::torch::nn::ReLUImpl::ReLUImpl;
  at::Tensor forward(const at::Tensor& input) {
    auto result = layers::relu(layer(), input, options.inplace());
    return result ? *result : ::torch::nn::ReLUImpl::forward(input);
  }
};

class LeakyReLUImpl : public ::torch::nn::LeakyReLUImpl, public Compressed {
 public:
  using ::torch::nn::LeakyReLUImpl::LeakyReLUImpl;
  at::Tensor forward(const at::Tensor& input) {
    auto result = layers::leaky_relu(layer(), input, options.negative_slope(), options.inplace());
    return result ? *result : ::torch::nn::LeakyReLUImpl::forward(input);
  }
};

class GELUImpl : public ::torch::nn::GELUImpl, public Compressed {
 public:
  using ::torch::nn::GELUImpl::GELUImpl;
  at::Tensor forward(const at::Tensor& input) {
    auto result = layers::gelu(layer(), input, options.approximate());
    return result ? *result : ::torch::nn::GELUImpl::forward(input);
  }
};

class SiLUImpl : public ::torch::nn::SiLUImpl, public Compressed {
 public:
  using ::torch::nn::SiLUImpl::SiLUImpl;
  at::Tensor forward(const at::Tensor& input) {
    auto result = layers::silu(layer(), input, /*inplace=*/false);
    return result ? *result : ::torch::nn::SiLUImpl::forward(input);
  }
};

class DropoutImpl : public ::torch::nn::DropoutImpl, public Compressed {
 public:
  using ::torch::nn::DropoutImpl::DropoutImpl;
  at::Tensor forward(const at::Tensor& input) {
    layers::Result result;
    if (is_training()) result = layers::dropout(layer(), input, options.p(), options.inplace());
    return result ? *result : ::torch::nn::DropoutImpl::forward(input);
  }
};

template <class Impl>
using Holder = ::torch::nn::ModuleHolder<Impl>;

using Conv1d = Holder<detail::ConvImpl<::torch::nn::Conv1dImpl, 1>>;
using Conv2d = Holder<detail::ConvImpl<::torch::nn::Conv2dImpl, 2>>;
using Conv3d = Holder<detail::ConvImpl<::torch::nn::Conv3dImpl, 3>>;
using ConvTranspose1d = Holder<detail::ConvTransposeImpl<::torch::nn::ConvTranspose1dImpl, 1>>;
using ConvTranspose2d = Holder<detail::ConvTransposeImpl<::torch::nn::ConvTranspose2dImpl, 2>>;
using ConvTranspose3d = Holder<detail::ConvTransposeImpl<::torch::nn::ConvTranspose3dImpl, 3>>;
using BatchNorm1d = Holder<detail::BatchNormImpl<::torch::nn::BatchNorm1dImpl>>;
using BatchNorm2d = Holder<detail::BatchNormImpl<::torch::nn::BatchNorm2dImpl>>;
using BatchNorm3d = Holder<detail::BatchNormImpl<::torch::nn::BatchNorm3dImpl>>;
using MaxPool1d = Holder<detail::MaxPoolImpl<::torch::nn::MaxPool1dImpl, 1>>;
using MaxPool2d = Holder<detail::MaxPoolImpl<::torch::nn::MaxPool2dImpl, 2>>;
using MaxPool3d = Holder<detail::MaxPoolImpl<::torch::nn::MaxPool3dImpl, 3>>;
using AvgPool1d = Holder<detail::AvgPoolImpl<::torch::nn::AvgPool1dImpl, 1>>;
using AvgPool2d = Holder<detail::AvgPoolImpl<::torch::nn::AvgPool2dImpl, 2>>;
using AvgPool3d = Holder<detail::AvgPoolImpl<::torch::nn::AvgPool3dImpl, 3>>;
using Linear = Holder<LinearImpl>;
using Embedding = Holder<EmbeddingImpl>;
using LayerNorm = Holder<LayerNormImpl>;
using GroupNorm = Holder<GroupNormImpl>;
using ReLU = Holder<ReLUImpl>;
using LeakyReLU = Holder<LeakyReLUImpl>;
using GELU = Holder<GELUImpl>;
using SiLU = Holder<SiLUImpl>;
using Dropout = Holder<DropoutImpl>;

}  // namespace actzip::torch::nn
