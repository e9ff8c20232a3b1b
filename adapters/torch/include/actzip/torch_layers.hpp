// Layers that compress what their own backward needs. They need no hooks, and actzip need not find out which operator
// saves. torch_nn.hpp has modules made of them.
//
//   actzip::torch::Layer layer("encoder.fc1", session);
//   auto y = actzip::torch::layers::linear(layer, x, weight, bias);
//   if (!y) y = at::linear(x, weight, bias);
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actzip/torch.hpp"

namespace actzip::torch {

struct LayerOptions {
  /// If a layer's input comes from a norm, possibly through a ReLU, compute it in backward from what the norm keeps.
  bool derive = true;
  /// If the gradient and twice the input of a convolution exceed this many bytes, its backward runs in chunks of the
  /// batch. 0: never.
  std::int64_t pipeline_threshold = 0;
};

/// Whether an in-place ReLU followed a batch norm when the norm last ran. If so, the norm makes the ReLU's mask in its
/// own pass.
struct ReluHint {
  std::atomic<bool> follows{false};
};

/// One layer of a model: its name in reports, its options and its session.
class Layer {
 public:
  /// Sites are told apart by the names of their layers, so give each layer a name of its own.
  Layer(std::string name, const Session& session, const LayerOptions& options = {});
  /// A layer without a session of its own. It uses the session of the scope on its thread or, outside of scopes,
  /// default_session(). If `name` is empty, one is generated.
  explicit Layer(std::string name = {}, const LayerOptions& options = {});

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const LayerOptions& options() const noexcept { return options_; }
  /// Null if the layer has no session of its own.
  [[nodiscard]] const std::shared_ptr<SessionImpl>& session() const noexcept { return session_; }
  /// The name as that session holds it; null without a session.
  [[nodiscard]] const std::string* path() const noexcept { return path_; }
  /// Shared by copies of the layer. Never null.
  [[nodiscard]] const std::shared_ptr<ReluHint>& relu_hint() const noexcept { return relu_hint_; }

 private:
  std::string name_;
  LayerOptions options_;
  std::shared_ptr<SessionImpl> session_;
  const std::string* path_ = nullptr;
  std::shared_ptr<ReluHint> relu_hint_ = std::make_shared<ReluHint>();
};

/// The session of layers that have none of their own, outside of scopes.
Session& default_session();

/// Begins a step of `session`. Call it before its layers run. Does nothing inside a scope of `session`, which has begun
/// a step already. Without this call, a step begins when a layer first keeps something after a backward.
void begin_step(const Session& session);

/// Call it when forward is done: statistics of samples are taken from the last layers before this call. Does nothing
/// inside a scope of `session`.
void end_step(const Session& session);

/// The operators. They return nothing if the layer has nothing to keep (no gradient is needed) or must not keep it
/// (foreign saved-tensor hooks, transforms, tracing, tensor subclasses), and for calls that they do not support. Call
/// torch's own operator then.
///
/// Otherwise the result is bit for bit what torch's operator returns. It agrees only up to rounding where actzip's own
/// code computes it: batch norms, GELU and SiLU on CUDA, and sync_batch_norm(). Its node cannot be differentiated
/// twice. `weight` and `bias` may be undefined where torch allows that. Autocast applies as usual.
namespace layers {

using Result = std::optional<at::Tensor>;

struct Window {  ///< as in at::convolution
  std::vector<std::int64_t> stride, padding, dilation, output_padding;
  bool transposed = false;
  std::int64_t groups = 1;
};
Result convolution(const Layer& layer, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                   const Window& window);
Result linear(const Layer& layer, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);
Result embedding(const Layer& layer, const at::Tensor& weight, const at::Tensor& indices, std::int64_t padding_idx,
                 bool scale_grad_by_freq, bool sparse);

struct NormWeights {  ///< applied to the normalised values
  at::Tensor weight, bias;
};
struct Running {  ///< statistics of a batch norm; undefined if it has none
  at::Tensor mean, var;
  double momentum = 0.1;
};
Result batch_norm(const Layer& layer, const at::Tensor& input, const NormWeights& affine, const Running& running,
                  bool training, double eps);
/// Gathers one row of numbers from every process and returns them as [processes, columns], in any order. It is called
/// in forward and in backward.
using Gather = std::function<at::Tensor(const at::Tensor& row)>;
/// A batch norm in training over the joint batch of all processes. Unlike the other operators it also computes results
/// that need no gradient.
Result sync_batch_norm(const Layer& layer, const at::Tensor& input, const NormWeights& affine, const Running& running,
                       double eps, const Gather& gather);
Result layer_norm(const Layer& layer, const at::Tensor& input, at::IntArrayRef shape, const NormWeights& affine,
                  double eps);
Result group_norm(const Layer& layer, const at::Tensor& input, std::int64_t groups, const NormWeights& affine,
                  double eps);
Result rms_norm(const Layer& layer, const at::Tensor& input, at::IntArrayRef shape, const at::Tensor& weight,
                std::optional<double> eps);

Result relu(const Layer& layer, const at::Tensor& input, bool inplace);
Result leaky_relu(const Layer& layer, const at::Tensor& input, double slope, bool inplace);
Result gelu(const Layer& layer, const at::Tensor& input, std::string_view approximate);
Result silu(const Layer& layer, const at::Tensor& input, bool inplace);
Result dropout(const Layer& layer, const at::Tensor& input, double p, bool inplace);

struct Pool {  ///< the vectors have one number for each pooled dimension
  std::vector<std::int64_t> kernel, stride, padding, dilation;
  bool ceil_mode = false;
  bool count_include_pad = true;                                ///< of an average
  std::optional<std::int64_t> divisor_override = std::nullopt;  ///< of an average
};
Result max_pool(const Layer& layer, const at::Tensor& input, const Pool& pool);
Result avg_pool(const Layer& layer, const at::Tensor& input, const Pool& pool);

}  // namespace layers
}  // namespace actzip::torch
