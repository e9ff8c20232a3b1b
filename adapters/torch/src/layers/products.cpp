// Convolutions, linear layers and embeddings.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "layers/layer_node.hpp"

namespace actzip::torch::layers {

namespace {

const OperatorInfo kConvolution{"convolution", {"input"}};
const OperatorInfo kLinear{"linear", {"input"}};
const OperatorInfo kEmbedding{"embedding", {"indices"}};

std::int64_t bytes_of(const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); }

class ConvolutionNode final : public LayerNode {
 public:
  ConvolutionNode(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, Window window,
                  std::int64_t pipeline_threshold)
      : LayerNode("ActzipConvolution"),
        weight_(weight),
        sizes_(input.sizes().vec()),
        strides_(input.strides().vec()),
        options_(input.options()),
        bias_sizes_(bias.defined() ? bias.sizes().vec() : std::vector<std::int64_t>{0}),
        window_(std::move(window)),
        pipeline_threshold_(pipeline_threshold) {}

  Input input;  ///< if the weight needs a gradient

 private:
  using Mask = std::array<bool, 3>;

  variable_list backward(const at::Tensor& gradient) override {
    const Mask mask = {needs(0), needs(1), needs(2)};
    // If only the input needs a gradient, torch uses the input's shape alone.
    const at::Tensor values = mask[1] ? input.restore() : at::empty_strided(sizes_, strides_, options_);
    const std::int64_t chunks = chunks_for(gradient, values);
    return chunks > 1 ? in_chunks(chunks, gradient, values, mask) : at_once(gradient, values, mask);
  }

  void release() override {
    input = {};
    weight_ = {};
  }

  variable_list at_once(const at::Tensor& gradient, const at::Tensor& values, const Mask& mask) const {
    auto [for_input, for_weight, for_bias] = at::convolution_backward(
        gradient, values, weight_.get(), at::OptionalIntArrayRef(bias_sizes_), window_.stride, window_.padding,
        window_.dilation, window_.transposed, window_.output_padding, window_.groups, mask);
    return {std::move(for_input), std::move(for_weight), std::move(for_bias)};
  }

  [[nodiscard]] std::int64_t chunks_for(const at::Tensor& gradient, const at::Tensor& values) const {
    if (pipeline_threshold_ <= 0) return 1;
    const std::int64_t bytes = bytes_of(gradient) + 2 * bytes_of(values);
    return std::min((bytes + pipeline_threshold_ - 1) / pipeline_threshold_, values.size(0));
  }

  /// In chunks of the batch, workspaces and the backend's own copies are only as large as one chunk needs.
  variable_list in_chunks(std::int64_t chunks, const at::Tensor& gradient, const at::Tensor& values,
                          const Mask& mask) const {
    const std::int64_t rows = values.size(0);
    const std::int64_t chunk = (rows + chunks - 1) / chunks;
    at::Tensor for_input = mask[0] ? at::empty_like(values) : at::Tensor();
    variable_list sums(2);
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
      const std::int64_t count = std::min(chunk, rows - begin);
      variable_list part = at_once(gradient.narrow(0, begin, count), values.narrow(0, begin, count), mask);
      if (mask[0]) for_input.narrow(0, begin, count).copy_(part[0]);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        if (mask[i + 1]) sums[i] = sums[i].defined() ? sums[i].add_(part[i + 1]) : part[i + 1];
      }
    }
    return {std::move(for_input), std::move(sums[0]), std::move(sums[1])};
  }

  Borrowed weight_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
  at::TensorOptions options_;
  std::vector<std::int64_t> bias_sizes_;
  Window window_;
  std::int64_t pipeline_threshold_;
};

class LinearNode final : public LayerNode {
 public:
  LinearNode() : LayerNode("ActzipLinear") {}

  Input input;               ///< if the weight needs a gradient
  Borrowed weight;           ///< if the input needs one
  std::int64_t outputs = 0;  ///< features

 private:
  /// The same products as in torch's own nodes, with the factors in the same order.
  variable_list backward(const at::Tensor& gradient) override {
    const at::Tensor rows = gradient.reshape({-1, outputs});
    variable_list result(3);
    if (needs(0)) {
      std::vector<std::int64_t> sizes = gradient.sizes().vec();
      const at::Tensor factor = weight.get();
      sizes.back() = factor.size(1);
      result[0] = at::mm(rows, factor).view(sizes);
    }
    if (needs(1)) {
      const at::Tensor values = input.restore();
      result[1] = at::mm(rows.t(), values.reshape({-1, values.size(-1)}));
    }
    if (needs(2)) result[2] = at::sum_to(rows, at::IntArrayRef(outputs));
    return result;
  }

  void release() override {
    input = {};
    weight = {};
  }
};

class EmbeddingNode final : public LayerNode {
 public:
  EmbeddingNode(std::int64_t rows, std::int64_t padding_idx, bool scale_by_frequency, bool sparse)
      : LayerNode("ActzipEmbedding"),
        rows_(rows),
        padding_idx_(padding_idx),
        scale_by_frequency_(scale_by_frequency),
        sparse_(sparse) {}

  Packed indices;

 private:
  variable_list backward(const at::Tensor& gradient) override {
    return {at::embedding_backward(gradient, indices.unpack(), rows_, padding_idx_, scale_by_frequency_, sparse_)};
  }
  void release() override { indices = {}; }

  std::int64_t rows_;
  std::int64_t padding_idx_;
  bool scale_by_frequency_;
  bool sparse_;
};

}  // namespace

Result convolution(const Layer& layer, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                   const Window& window) {
  Forward forward(layer, {input, weight, bias});
  if (!forward.keeps() || input.dim() != weight.dim()) return std::nullopt;
  const at::Tensor x = lowered(input);
  const at::Tensor w = lowered(weight);
  const at::Tensor b = bias.defined() ? lowered(bias) : bias;
  at::Tensor result = below_autograd([&] {
    return at::convolution(x, w, b, window.stride, window.padding, window.dilation, window.transposed,
                           window.output_padding, window.groups);
  });
  const auto node = make_node<ConvolutionNode>(x, w, b, window, layer.options().pipeline_threshold);
  if (w.requires_grad()) node->input = Input(forward, kConvolution, input, x);
  forward.connect(node, {x, w, b}, result);
  return result;
}

Result linear(const Layer& layer, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  Forward forward(layer, {input, weight, bias});
  if (!forward.keeps() || weight.dim() != 2) return std::nullopt;
  const at::Tensor x = lowered(input);
  const at::Tensor w = lowered(weight);
  const at::Tensor b = bias.defined() ? lowered(bias) : bias;
  at::Tensor result = below_autograd([&] { return at::linear(x, w, b); });
  const auto node = make_node<LinearNode>();
  if (w.requires_grad()) node->input = Input(forward, kLinear, input, x);
  if (x.requires_grad()) node->weight = Borrowed(w);
  node->outputs = w.size(0);
  forward.connect(node, {x, w, b}, result);
  return result;
}

Result embedding(const Layer& layer, const at::Tensor& weight, const at::Tensor& indices, std::int64_t padding_idx,
                 bool scale_grad_by_freq, bool sparse) {
  Forward forward(layer, {weight, indices});
  if (!forward.keeps()) return std::nullopt;
  at::Tensor result =
      below_autograd([&] { return at::embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse); });
  const auto node = make_node<EmbeddingNode>(weight.size(0), padding_idx, scale_grad_by_freq, sparse);
  OperatorFacts facts;
  facts.index_bound = weight.size(0);
  node->indices = forward.keep(kEmbedding, {0}, indices, facts, {});
  forward.connect(node, {weight}, result);
  return result;
}

}  // namespace actzip::torch::layers
