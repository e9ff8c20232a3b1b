// The layers of the models. They act as LibTorch's until nn::keep_with() gives them a session, then as actzip's.
#pragma once

#include "actzip/torch_nn.hpp"

namespace actzip::models {

namespace detail {

/// Forwards to actzip's layer if it has a session, and to LibTorch's otherwise. Without this switch, actzip's layers
/// would compress with default_session() even in plain training.
template <class Ours, class Theirs>
class SwitchedImpl : public Ours {
 public:
  using Ours::Ours;
  at::Tensor forward(const at::Tensor& input) {
    return this->layer().session() != nullptr ? Ours::forward(input) : Theirs::forward(input);
  }
};

template <class Ours, class Theirs>
using Switched = ::torch::nn::ModuleHolder<SwitchedImpl<typename Ours::ContainedType, Theirs>>;

}  // namespace detail

using Conv2d = detail::Switched<torch::nn::Conv2d, ::torch::nn::Conv2dImpl>;
using BatchNorm1d = detail::Switched<torch::nn::BatchNorm1d, ::torch::nn::BatchNorm1dImpl>;
using BatchNorm2d = detail::Switched<torch::nn::BatchNorm2d, ::torch::nn::BatchNorm2dImpl>;
using MaxPool2d = detail::Switched<torch::nn::MaxPool2d, ::torch::nn::MaxPool2dImpl>;
using AvgPool2d = detail::Switched<torch::nn::AvgPool2d, ::torch::nn::AvgPool2dImpl>;
using Linear = detail::Switched<torch::nn::Linear, ::torch::nn::LinearImpl>;
using Embedding = detail::Switched<torch::nn::Embedding, ::torch::nn::EmbeddingImpl>;
using LayerNorm = detail::Switched<torch::nn::LayerNorm, ::torch::nn::LayerNormImpl>;
using ReLU = detail::Switched<torch::nn::ReLU, ::torch::nn::ReLUImpl>;
using GELU = detail::Switched<torch::nn::GELU, ::torch::nn::GELUImpl>;
using Dropout = detail::Switched<torch::nn::Dropout, ::torch::nn::DropoutImpl>;

inline Conv2d convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, std::int64_t stride = 1,
                          bool bias = false) {
  return Conv2d(::torch::nn::Conv2dOptions(inputs, outputs, kernel).stride(stride).padding(kernel / 2).bias(bias));
}

inline Linear product(std::int64_t inputs, std::int64_t outputs) {
  return Linear(::torch::nn::LinearOptions(inputs, outputs).bias(false));
}

/// Works in place, because nothing in these models reads a ReLU's input again.
inline ReLU relu() { return ReLU(::torch::nn::ReLUOptions(true)); }

}  // namespace actzip::models
