// Pooling. Of the input, backward needs only the shape; of a maximum, its position in its window.
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/avg_pool3d_backward.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/max_pool3d_with_indices_backward.h>

#include <limits>

#include "layers/layer_node.hpp"

namespace actzip::torch::layers {

namespace {

const OperatorInfo kMaxPool{"max_pool", {"self"}};
const OperatorInfo kAvgPool{"avg_pool", {"self"}};

/// Treats a line as an image of height 1, because torch has kernels for planes and volumes only.
Pool as_plane(Pool pool) {
  for (auto* numbers : {&pool.kernel, &pool.stride, &pool.dilation}) numbers->insert(numbers->begin(), 1);
  pool.padding.insert(pool.padding.begin(), 0);
  return pool;
}

/// Converts between the index of a maximum in the input, which torch uses, and its offset in its own window, which
/// takes only a few bits.
class Offsets {
 public:
  /// `sizes` are those of the input's pooled dimensions.
  Offsets(const Pool& pool, at::IntArrayRef sizes) : pool_(pool), sizes_(sizes.vec()) {
    const std::size_t last = sizes_.size() - 1;
    place_.assign(sizes_.size(), 1);
    stride_.assign(sizes_.size(), 1);
    for (std::size_t d = last; d-- > 0;) {
      stride_[d] = stride_[d + 1] * sizes_[d + 1];
      place_[d] = place_[d + 1] * (d + 1 == last ? extent(last) : pool_.kernel[d + 1]);
    }
    bound_ = place_[0] * (last == 0 ? extent(0) : pool_.kernel[0]);
    elems_ = stride_[0] * sizes_[0];
  }

  /// Every offset is below this.
  [[nodiscard]] std::int64_t bound() const { return bound_; }

  /// Whether offsets determine the indices: windows must not reach around an edge.
  [[nodiscard]] bool work() const {
    for (std::size_t d = 1; d < sizes_.size(); ++d) {
      if (extent(d) > sizes_[d]) return false;
    }
    return elems_ < std::numeric_limits<std::int32_t>::max();
  }

  [[nodiscard]] at::Tensor from_indices(const at::Tensor& indices) const {
    at::Tensor rest = indices.to(at::kInt).sub_(corners(indices));
    at::Tensor offsets;
    for (std::size_t d = 0; d + 1 < sizes_.size(); ++d) {
      const std::int64_t step = pool_.dilation[d] * stride_[d];
      at::Tensor steps = rest.div(step, "floor");
      rest.sub_(steps, step);
      steps.mul_(place_[d]);
      offsets = offsets.defined() ? offsets.add_(steps) : steps;
    }
    return offsets.add_(rest);
  }

  [[nodiscard]] at::Tensor to_indices(const at::Tensor& offsets) const {
    at::Tensor rest = offsets.clone();
    at::Tensor indices = corners(offsets).expand_as(offsets).to(at::kLong, false, true);
    for (std::size_t d = 0; d + 1 < sizes_.size(); ++d) {
      const at::Tensor steps = rest.div(place_[d], "floor");
      rest.sub_(steps, place_[d]);
      indices.add_(steps, pool_.dilation[d] * stride_[d]);
    }
    return indices.add_(rest);
  }

 private:
  [[nodiscard]] std::int64_t extent(std::size_t d) const { return pool_.dilation[d] * (pool_.kernel[d] - 1) + 1; }

  /// The index of each window's first element, which may lie in the padding.
  [[nodiscard]] at::Tensor corners(const at::Tensor& like) const {
    const auto rank = static_cast<std::int64_t>(sizes_.size());
    at::Tensor sum;
    for (std::int64_t d = 0; d < rank; ++d) {
      const auto at = static_cast<std::size_t>(d);
      const std::int64_t step = pool_.stride[at] * stride_[at];
      const std::int64_t begin = -pool_.padding[at] * stride_[at];
      std::vector<std::int64_t> view(sizes_.size(), 1);
      const std::int64_t count = like.size(like.dim() - rank + d);
      view[at] = count;
      const at::Tensor line = at::arange(begin, begin + count * step, step, like.options().dtype(at::kInt)).view(view);
      sum = sum.defined() ? sum + line : line;
    }
    return sum;
  }

  const Pool pool_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> stride_;  ///< of the input's dimensions, in elements
  std::vector<std::int64_t> place_;   ///< place value of the window's dimensions in an offset
  std::int64_t bound_ = 0;
  std::int64_t elems_ = 0;
};

class MaxPoolNode final : public LayerNode {
 public:
  MaxPoolNode(Pool pool, std::optional<Offsets> offsets)
      : LayerNode("ActzipMaxPool"), pool_(std::move(pool)), offsets_(std::move(offsets)) {}

  Packed shape;     ///< of the input
  Packed position;  ///< of each maximum
  bool is_line = false;

 private:
  variable_list backward(const at::Tensor& gradient) override {
    const at::Tensor like = shape.unpack();
    const at::Tensor saved = position.unpack();
    const at::Tensor indices = offsets_ ? offsets_->to_indices(saved) : saved;
    if (is_line) return {plane(gradient.unsqueeze(-2), like.unsqueeze(-2), indices).squeeze(-2)};
    return {pool_.kernel.size() == 3 ? volume(gradient, like, indices) : plane(gradient, like, indices)};
  }

  [[nodiscard]] at::Tensor plane(const at::Tensor& gradient, const at::Tensor& like, const at::Tensor& indices) const {
    return at::max_pool2d_with_indices_backward(gradient, like, pool_.kernel, pool_.stride, pool_.padding,
                                                pool_.dilation, pool_.ceil_mode, indices);
  }
  [[nodiscard]] at::Tensor volume(const at::Tensor& gradient, const at::Tensor& like, const at::Tensor& indices) const {
    return at::max_pool3d_with_indices_backward(gradient, like, pool_.kernel, pool_.stride, pool_.padding,
                                                pool_.dilation, pool_.ceil_mode, indices);
  }
  void release() override { shape = position = {}; }

  Pool pool_;
  std::optional<Offsets> offsets_;
};

class AvgPoolNode final : public LayerNode {
 public:
  explicit AvgPoolNode(Pool pool) : LayerNode("ActzipAvgPool"), pool_(std::move(pool)) {}

  Packed shape;  ///< of the input
  bool is_line = false;

 private:
  variable_list backward(const at::Tensor& gradient) override {
    const at::Tensor like = shape.unpack();
    if (is_line) return {plane(gradient.unsqueeze(-2), like.unsqueeze(-2)).squeeze(-2)};
    if (pool_.kernel.size() == 2) return {plane(gradient, like)};
    return {at::avg_pool3d_backward(gradient, like, pool_.kernel, pool_.stride, pool_.padding, pool_.ceil_mode,
                                    pool_.count_include_pad, pool_.divisor_override)};
  }

  [[nodiscard]] at::Tensor plane(const at::Tensor& gradient, const at::Tensor& like) const {
    return at::avg_pool2d_backward(gradient, like, pool_.kernel, pool_.stride, pool_.padding, pool_.ceil_mode,
                                   pool_.count_include_pad, pool_.divisor_override);
  }
  void release() override { shape = {}; }

  Pool pool_;
};

}  // namespace

Result max_pool(const Layer& layer, const at::Tensor& input, const Pool& given) {
  Forward forward(layer, {input});
  const bool is_line = given.kernel.size() == 1;
  const auto rank = static_cast<std::int64_t>(given.kernel.size());
  if (!forward.keeps() || input.dim() <= rank) return std::nullopt;
  const Pool pool = is_line ? as_plane(given) : given;
  at::Tensor result;
  at::Tensor indices;
  {
    const BelowAutograd below;
    const at::Tensor x = is_line ? input.unsqueeze(-2) : input;
    std::tie(result, indices) =
        pool.kernel.size() == 3
            ? at::max_pool3d_with_indices(x, pool.kernel, pool.stride, pool.padding, pool.dilation, pool.ceil_mode)
            : at::max_pool2d_with_indices(x, pool.kernel, pool.stride, pool.padding, pool.dilation, pool.ceil_mode);
    if (is_line) result = result.squeeze(-2);
  }
  std::vector<std::int64_t> sizes = input.sizes().slice(static_cast<std::size_t>(input.dim() - rank)).vec();
  if (is_line) sizes.insert(sizes.begin(), 1);
  Offsets offsets(pool, sizes);
  const bool are_small = offsets.work();
  OperatorFacts facts;
  facts.index_bound = are_small ? offsets.bound() : c10::multiply_integers(sizes);
  if (are_small) {
    const BelowAutograd below;
    indices = offsets.from_indices(indices);
  }
  const auto node = make_node<MaxPoolNode>(pool, are_small ? std::optional<Offsets>(std::move(offsets)) : std::nullopt);
  node->is_line = is_line;
  node->shape = forward.keep(kMaxPool, {0}, input);
  node->position = forward.keep(kMaxPool, {SlotCode::kOther}, indices, facts, {});
  forward.connect(node, {input}, result);
  return result;
}

Result avg_pool(const Layer& layer, const at::Tensor& input, const Pool& given) {
  Forward forward(layer, {input});
  const bool is_line = given.kernel.size() == 1;
  const bool is_volume = given.kernel.size() == 3;
  if (!forward.keeps() || input.dim() <= static_cast<std::int64_t>(given.kernel.size())) return std::nullopt;
  if (is_volume && at::autocast::is_autocast_enabled(input.device().type())) return std::nullopt;  // it may be cast
  const Pool pool = is_line ? as_plane(given) : given;
  at::Tensor result;
  {
    const BelowAutograd below;
    const at::Tensor x = is_line ? input.unsqueeze(-2) : input;
    result = is_volume ? at::avg_pool3d(x, pool.kernel, pool.stride, pool.padding, pool.ceil_mode,
                                        pool.count_include_pad, pool.divisor_override)
                       : at::avg_pool2d(x, pool.kernel, pool.stride, pool.padding, pool.ceil_mode,
                                        pool.count_include_pad, pool.divisor_override);
    if (is_line) result = result.squeeze(-2);
  }
  const auto node = make_node<AvgPoolNode>(pool);
  node->is_line = is_line;
  node->shape = forward.keep(kAvgPool, {0}, input);
  forward.connect(node, {input}, result);
  return result;
}

}  // namespace actzip::torch::layers
