// How a norm's result, perhaps after a ReLU, follows from what the norm keeps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "layers/fused_batch_norm.hpp"
#include "layers/layer_node.hpp"

namespace actzip::torch::layers {

/// Statistics are exact and what is kept is unbiased, so the result is unbiased too: it is linear in it.
struct Recipe {
  enum class Over : std::uint8_t { channels, rows };

  Over over = Over::channels;
  Packed source;    ///< the norm's input
  at::Tensor mean;  ///< undefined for an RMS norm
  at::Tensor rstd;  ///< of each channel or row
  Borrowed weight;  ///< undefined without one, as is bias
  Borrowed bias;
  std::optional<FusedNorm> fused = {};  ///< if the source has normal values, from which kernels derive it
  std::optional<Packed> mask = {};      ///< the result of a ReLU after the norm

  /// For `input`, the norm's.
  [[nodiscard]] at::Tensor result(const at::Tensor& input) const;
  /// For what `kept` restores, as `type`.
  [[nodiscard]] at::Tensor result_of(const Packed& kept, c10::ScalarType type) const;

 private:
  [[nodiscard]] at::Tensor rows_of(const Packed& kept, c10::ScalarType type) const;
};

/// With the last share goes what was derived by it.
std::shared_ptr<const Recipe> share(Recipe recipe);

/// (input - mean) * rstd * weight + bias for each channel, in the type that the arguments promote to on the CPU, in the
/// input's on CUDA.
at::Tensor normalize_channels(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
                              const at::Tensor& weight, const at::Tensor& bias);

/// A vector with an element for each channel, as a factor of a tensor of so many dimensions.
at::Tensor along_channels(const at::Tensor& vector, std::int64_t dimensions);

/// The recipe of the node that made `tensor`; null if there is none, or the tensor was modified since.
std::shared_ptr<const Recipe> recipe_of(const at::Tensor& tensor);

}  // namespace actzip::torch::layers
