// Layers that keep what their backward needs themselves, compressed: no hooks, and nobody has to find out who saves.
// torch_nn.hpp has modules made of them.
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
  /// Inputs that follow a norm, perhaps with a ReLU between, are computed in backward from what the norm keeps.
  bool derive = true;
  /// A convolution whose gradient and twice its input have more bytes runs backward in chunks of the batch. 0: never.
  std::int64_t pipeline_threshold = 0;
};

/// Whether a ReLU followed a batch norm when it last ran, so that its mask is worth making beforehand.
struct ReluHint {
  std::atomic<bool> follows{false};
};

/// One layer of a model: its name in reports, and the session that keeps for it.
class Layer {
 public:
  /// Names tell sites apart: give each layer its own.
  Layer(std::string name, const Session& session, const LayerOptions& options = {});
  /// Without a session: that of the scope on its thread keeps, or, outside of any, default_session(). With an empty
  /// name it gets one.
  explicit Layer(std::string name = {}, const LayerOptions& options = {});

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const LayerOptions& options() const noexcept { return options_; }
  /// Null if it has none of its own.
  [[nodiscard]] const std::shared_ptr<SessionImpl>& session() const noexcept { return session_; }
  /// Its name in that session.
  [[nodiscard]] const std::string* path() const noexcept { return path_; }
  /// Copies share it. Not null.
  [[nodiscard]] const std::shared_ptr<ReluHint>& relu_hint() const noexcept { return relu_hint_; }

 private:
  std::string name_;
  LayerOptions options_;
  std::shared_ptr<SessionImpl> session_;
  const std::string* path_ = nullptr;
  std::shared_ptr<ReluHint> relu_hint_ = std::make_shared<ReluHint>();
};

/// What layers without a session keep with outside of scopes.
Session& default_session();

/// Begins a step of a session whose layers are about to run; does nothing inside a scope of it, which has begun one.
/// Without this call a step begins with the first save after a backward.
void begin_step(const Session& session);

/// Ends it, when forward is done: statistics of samples are taken from the last layers before.
void end_step(const Session& session);

/// The operators. None is returned where the layer has nothing to keep (no gradient is asked for) or may not (hooks of
/// others, transforms, tracing, tensor subclasses): then torch's own operator is to be called, which does as well.
/// Otherwise the result is torch's, bit for bit, but for batch norms that CUDA kernels of ours compute, up to rounding;
/// its node cannot be differentiated twice. `weight` and `bias` may be
/// undefined where torch allows that. Autocast is heeded.
namespace layers {

using Result = std::optional<at::Tensor>;

struct Window {  ///< of a convolution; as in at::convolution
  std::vector<std::int64_t> stride, padding, dilation, output_padding;
  bool transposed = false;
  std::int64_t groups = 1;
};
Result convolution(const Layer& layer, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                   const Window& window);
Result linear(const Layer& layer, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);
Result embedding(const Layer& layer, const at::Tensor& weight, const at::Tensor& indices, std::int64_t padding_idx,
                 bool scale_grad_by_freq, bool sparse);

struct NormWeights {  ///< what a norm applies afterwards
  at::Tensor weight, bias;
};
struct Running {  ///< statistics of a batch norm; undefined if it has none
  at::Tensor mean, var;
  double momentum = 0.1;
};
Result batch_norm(const Layer& layer, const at::Tensor& input, const NormWeights& affine, const Running& running,
                  bool training, double eps);
/// Gives the rows of all processes for one row: [world, columns]. Sums of the results are what is needed of it.
using Gather = std::function<at::Tensor(const at::Tensor& row)>;
/// A batch norm over the batches of all processes, in training.
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

struct Pool {  ///< one number for each dimension that is pooled
  std::vector<std::int64_t> kernel, stride, padding, dilation;
  bool ceil_mode = false;
  bool count_include_pad = true;                                ///< of an average
  std::optional<std::int64_t> divisor_override = std::nullopt;  ///< of an average
};
Result max_pool(const Layer& layer, const at::Tensor& input, const Pool& pool);
Result avg_pool(const Layer& layer, const at::Tensor& input, const Pool& pool);

}  // namespace layers
}  // namespace actzip::torch
