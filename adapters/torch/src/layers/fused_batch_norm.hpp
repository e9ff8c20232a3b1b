// Batch norm in passes of our own, on devices that have them (actzip/batch_norm.hpp): the input is encoded while it is
// normalised, and gradients are made from its bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "actzip/batch_norm.hpp"
#include "layers/layer_node.hpp"

namespace actzip::torch::layers {

/// What was done to the channels of a tensor.
struct FusedNorm {
  ChannelRows shape;
  at::Tensor numbers;  ///< of the Normalization: a row each for weight, bias, mean and inverse deviation

  [[nodiscard]] Normalization normalization() const;

  /// The result of the norm, 0 where `mask` says so; undefined if what is kept is no encoding that kernels take.
  [[nodiscard]] at::Tensor result(const Packed& input, const std::optional<Packed>& mask) const;
  /// The same of normal values, which is what is kept, by torch's operators.
  [[nodiscard]] at::Tensor result(const at::Tensor& normal) const;
};

/// What a batch norm gives.
struct Normalized {
  at::Tensor result;
  at::Tensor signs;  ///< the plane of what is above 0; undefined if nobody asked for it
  FusedNorm norm;
};

/// Normalises `input`, and encodes normal values into `room` in its place; for a ReLU that follows also makes the
/// plane of signs. None, and nothing is written, if no bytes are wanted or kernels do not take it.
std::optional<Normalized> normalize_into(const Reservation& room, const at::Tensor& input, const NormWeights& affine,
                                         const Running& running, double eps, bool with_signs);

/// A batch norm, perhaps with a ReLU that took its result's place.
class FusedBatchNormNode final : public LayerNode {
 public:
  FusedBatchNormNode(const at::Tensor& like, const NormWeights& affine, double eps);
  /// The same with a ReLU behind it, of which only the mask is missing.
  explicit FusedBatchNormNode(const FusedBatchNormNode& norm);

  Packed input;  ///< its normal values
  FusedNorm norm;
  std::optional<Packed> mask;           ///< of the ReLU
  at::Tensor signs;                     ///< for a ReLU that is expected; it takes them away
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

/// A node for both, if `input` is what a fused batch norm gave, nobody looks at gradients between the two, and a ReLU
/// takes its place. Its edges are those of the batch norm, which stays for whoever used its result before.
decltype(make_node<FusedBatchNormNode>(std::declval<const FusedBatchNormNode&>())) joined_with_relu(
    const at::Tensor& input);

/// Writes signs that are known already as the encoding of a ReLU's result. Gives whether it did: not if they are
/// undefined, or something else is wanted.
bool copy_signs_into(const Reservation& room, const at::Tensor& signs);

}  // namespace actzip::torch::layers
