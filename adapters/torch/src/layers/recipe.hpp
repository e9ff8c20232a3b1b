// How the result of a norm, possibly after a ReLU, is computed from what the norm keeps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "layers/fused_batch_norm.hpp"
#include "layers/layer_node.hpp"

namespace actzip::torch::layers {

/// The statistics are exact, the kept input is unbiased, and the result is linear in it, so it is unbiased too.
struct Recipe {
  enum class Over : std::uint8_t { channels, rows };

  Over over = Over::channels;
  Packed source;    ///< the norm's input
  at::Tensor mean;  ///< undefined for an RMS norm
  at::Tensor rstd;  ///< one per channel or row
  Borrowed weight;  ///< undefined if the norm has none, like bias
  Borrowed bias;
  std::optional<FusedNorm> fused = {};  ///< set if the source holds normalised values
  std::optional<Packed> mask = {};      ///< of a ReLU that follows the norm

  /// Returns the result for `input`, the norm's input.
  [[nodiscard]] at::Tensor result(const at::Tensor& input) const;
  /// Returns the result for what `kept` restores, in `type`.
  [[nodiscard]] at::Tensor result_of(const Packed& kept, c10::ScalarType type) const;

 private:
  [[nodiscard]] at::Tensor rows_of(const Packed& kept, c10::ScalarType type) const;
};

/// Shares a recipe. With the last share, cached results of it are freed.
std::shared_ptr<const Recipe> share(Recipe recipe);

/// Returns (input - mean) * rstd * weight + bias for each channel. On the CPU in the type that the arguments promote
/// to, on CUDA in that of the input.
at::Tensor normalize_channels(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
                              const at::Tensor& weight, const at::Tensor& bias);

/// Returns a vector with one element per channel, shaped so that it broadcasts to a tensor of `dimensions` dimensions.
at::Tensor along_channels(const at::Tensor& vector, std::int64_t dimensions);

/// Returns the recipe of the node that made `tensor`; null if there is none, or if the tensor was modified since.
std::shared_ptr<const Recipe> recipe_of(const at::Tensor& tensor);

}  // namespace actzip::torch::layers
