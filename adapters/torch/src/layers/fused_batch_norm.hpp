// Batch norm with actzip's own kernels, on devices that have them (actzip/batch_norm.hpp). The input is encoded in the
// pass that normalises it, and gradients are computed from its bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "actzip/batch_norm.hpp"
#include "layers/layer_node.hpp"

namespace actzip::torch::layers {

/// What a fused batch norm did to the channels of its input.
struct FusedNorm {
  ChannelRows shape;
  at::Tensor numbers;  ///< of the Normalization: rows of weight, bias, mean and inverse deviation

  [[nodiscard]] Normalization normalization() const;

  /// Returns the result of the norm, with 0 where `mask` has 0. Undefined if kernels do not support how `input` is
  /// kept.
  [[nodiscard]] at::Tensor result(const Packed& input, const std::optional<Packed>& mask) const;
  /// The same from normalised values, which are what is kept, with torch's operators.
  [[nodiscard]] at::Tensor result(const at::Tensor& normal) const;
};

/// The result of normalize_into().
struct Normalized {
  at::Tensor result;
  at::Tensor signs;  ///< one bit per element: whether it is above 0; undefined if not wanted
  FusedNorm norm;
};

/// Normalises `input`, and encodes the normalised values into `room` in place of the input. With `with_signs`, also
/// makes the bits for a ReLU that follows. Returns nothing, and writes nothing, if no bytes are wanted or no kernel
/// supports the call.
std::optional<Normalized> normalize_into(const Reservation& room, const at::Tensor& input, const NormWeights& affine,
                                         const Running& running, double eps, bool with_signs);

/// A batch norm, possibly with an in-place ReLU after it.
class FusedBatchNormNode final : public LayerNode {
 public:
  FusedBatchNormNode(const at::Tensor& like, const NormWeights& affine, double eps);
  /// The same with a ReLU after it, whose mask must still be set.
  explicit FusedBatchNormNode(const FusedBatchNormNode& norm);

  Packed input;  ///< the normalised values
  FusedNorm norm;
  std::optional<Packed> mask;           ///< of the ReLU
  at::Tensor signs;                     ///< for the ReLU that is expected to follow and takes them
  std::shared_ptr<ReluHint> relu_hint;  ///< of the layer

 private:
  variable_list backward(const at::Tensor& gradient) override;
  void release() override;
  [[nodiscard]] variable_list by_torch(const at::Tensor& gradient) const;

  Borrowed weight_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
  at::TensorOptions options_;
  double eps_;
};

/// Returns one node for both, if `input` is the result of a fused batch norm, no hooks see the gradient between the
/// two, and a ReLU works in place on it. Otherwise null. The node has the edges of the batch norm's node, which remains
/// for earlier uses of the norm's result.
decltype(make_node<FusedBatchNormNode>(std::declval<const FusedBatchNormNode&>())) joined_with_relu(
    const at::Tensor& input);

/// Writes known signs as the encoding of a ReLU's result. Returns whether it did: not if they are undefined, or if
/// another encoding is wanted.
bool copy_signs_into(const Reservation& room, const at::Tensor& signs);

}  // namespace actzip::torch::layers
