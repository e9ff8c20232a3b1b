// Batch norms, in one process or several, and norms of rows and groups.
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_batch_norm_impl_index.h>
#include <ATen/ops/_batch_norm_impl_index_backward.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>

#include "layers/recipe.hpp"

namespace actzip::torch::layers {

namespace {

const OperatorInfo kBatchNorm{"batch_norm", {"input"}};
const OperatorInfo kLayerNorm{"native_layer_norm", {"input"}};
const OperatorInfo kGroupNorm{"native_group_norm", {"input"}};
const OperatorInfo kRmsNorm{"_fused_rms_norm", {"input"}};

bool needs_gradient(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// Offers a recipe to the layers that follow, if the norm's input is encoded.
void offer_recipe(LayerNode& node, const at::Tensor& result, Recipe recipe) {
  if (!recipe.source.is_encoded()) return;
  node.recipe = share(std::move(recipe));
  node.result = Stamp(result);
}

/// Makes the node for a batch norm that normalize_into() has computed.
at::Tensor fused_batch_norm(Forward& forward, const at::Tensor& input, const NormWeights& affine, double eps,
                            Normalized made, const Packed& kept) {
  const auto node = make_node<FusedBatchNormNode>(input, affine, eps);
  node->input = kept;
  node->norm = std::move(made.norm);
  node->signs = std::move(made.signs);
  node->relu_hint = forward.layer().relu_hint();
  forward.connect(node, {input, affine.weight, affine.bias}, made.result);
  offer_recipe(*node, made.result,
               {Recipe::Over::channels, kept, {}, {}, Borrowed(affine.weight), Borrowed(affine.bias), node->norm});
  return made.result;
}

class BatchNormNode final : public LayerNode {
 public:
  BatchNormNode(const at::Tensor& input, const NormWeights& affine, const Running& running, bool training, double eps)
      : LayerNode("ActzipBatchNorm"),
        weight_(affine.weight),
        running_mean_(running.mean),
        running_var_(running.var),
        sizes_(input.sizes().vec()),
        strides_(input.strides().vec()),
        options_(input.options()),
        training_(training),
        eps_(eps) {}

  std::optional<Packed> input;  ///< set if its values are needed
  at::Tensor mean;
  at::Tensor rstd;
  at::Tensor reserve;  ///< what the backend needs again
  std::int64_t backend = 0;

 private:
  variable_list backward(const at::Tensor& gradient) override {
    const at::Tensor values = input ? input->unpack_as_tried() : at::empty_strided(sizes_, strides_, options_);
    auto [for_input, for_weight, for_bias] = at::_batch_norm_impl_index_backward(
        backend, values, gradient, weight_.get(), running_mean_.get(), running_var_.get(), mean, rstd, training_, eps_,
        {needs(0), needs(1), needs(2)}, reserve);
    return {std::move(for_input), std::move(for_weight), std::move(for_bias)};
  }

  void release() override {
    input.reset();
    mean = rstd = reserve = at::Tensor();
    weight_ = running_mean_ = running_var_ = Borrowed();
  }

  Borrowed weight_;
  Borrowed running_mean_;  ///< set in evaluation only, like the next
  Borrowed running_var_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
  at::TensorOptions options_;
  bool training_;
  double eps_;
};

/// All dimensions except the channels.
std::vector<std::int64_t> but_channels(const at::Tensor& tensor) {
  std::vector<std::int64_t> dims = {0};
  for (std::int64_t d = 2; d < tensor.dim(); ++d) dims.push_back(d);
  return dims;
}

at::Tensor in_full(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

/// Over all processes: mean and biased variance of each channel, and the number of elements of each.
struct JointStatistics {
  at::Tensor mean;
  at::Tensor var;
  at::Tensor count;  ///< one element
};

JointStatistics joint_statistics(const at::Tensor& input, const Gather& gather) {
  const at::Tensor values = in_full(input);
  const std::int64_t channels = input.size(1);
  const std::int64_t elems = input.numel() / channels;
  at::Tensor var = at::zeros({channels}, values.options());
  at::Tensor mean = var;
  if (elems > 0) std::tie(var, mean) = at::var_mean(values, but_channels(values), /*unbiased=*/false);
  const at::Tensor count = at::full({1}, static_cast<double>(elems), values.options());
  const at::Tensor rows = gather(at::cat({mean, var, count}));
  const at::Tensor means = rows.narrow(1, 0, channels);
  const at::Tensor counts = rows.narrow(1, 2 * channels, 1);
  JointStatistics joint;
  joint.count = counts.sum();
  joint.mean = (means * counts).sum(0) / joint.count;
  const at::Tensor squares = rows.narrow(1, channels, channels) + (means - joint.mean).square();
  joint.var = (squares * counts).sum(0) / joint.count;
  return joint;
}

void update(const Running& running, const JointStatistics& joint) {
  if (!running.mean.defined()) return;
  running.mean.mul_(1.0 - running.momentum).add_(joint.mean, running.momentum);
  const at::Tensor unbiased = joint.var * (joint.count / (joint.count - 1));
  running.var.mul_(1.0 - running.momentum).add_(unbiased, running.momentum);
}

class SyncBatchNormNode final : public LayerNode {
 public:
  SyncBatchNormNode(const at::Tensor& weight, Gather gather)
      : LayerNode("ActzipSyncBatchNorm"), weight_(weight), gather_(std::move(gather)) {}

  Packed input;
  at::Tensor mean;
  at::Tensor rstd;
  at::Tensor count;

 private:
  variable_list backward(const at::Tensor& gradient) override {
    const at::Tensor values = input.unpack_as_tried();
    const auto along = [&](const at::Tensor& vector) { return along_channels(vector, values.dim()); };
    const at::Tensor from_above = in_full(gradient);
    const auto dims = but_channels(values);
    const at::Tensor sum = from_above.sum(dims);
    const at::Tensor products = ((values - along(mean)) * from_above).sum(dims) * rstd;  // with the normalised values
    const std::int64_t channels = sum.numel();
    variable_list result(3);
    if (needs(0)) {
      const at::Tensor all = gather_(at::cat({sum, products})).sum(0) / count;
      const at::Tensor weight = weight_.get();
      const at::Tensor scale = weight.defined() ? rstd * weight : rstd;
      const at::Tensor slope = all.narrow(0, channels, channels) * rstd * -scale;
      const at::Tensor shift = all.narrow(0, 0, channels) * -scale - mean * slope;
      result[0] = at::addcmul(at::addcmul(along(shift), values, along(slope)), from_above, along(scale))
                      .to(gradient.scalar_type());
    }
    if (needs(1)) result[1] = products.to(weight_.get().scalar_type());
    if (needs(2)) result[2] = sum;
    return result;
  }

  void release() override {
    input = {};
    mean = rstd = count = at::Tensor();
    weight_ = Borrowed();
  }

  Borrowed weight_;
  Gather gather_;
};

/// Norms that compute statistics for each row, or for each group of a sample.
template <class Function>
class RowNormNode final : public LayerNode {
 public:
  RowNormNode(const char* name, const NormWeights& affine, Function function)
      : LayerNode(name), weight_(affine.weight), bias_(affine.bias), function_(std::move(function)) {}

  Packed input;
  at::Tensor mean;
  at::Tensor rstd;

 private:
  variable_list backward(const at::Tensor& gradient) override {
    const std::size_t edges = num_outputs();
    const std::array<bool, 3> mask = {needs(0), edges > 1 && needs(1), edges > 2 && needs(2)};
    variable_list result = function_(gradient, input.unpack_as_tried(), mean, rstd, {weight_.get(), bias_.get()}, mask);
    result.resize(edges);
    return result;
  }

  void release() override {
    input = {};
    mean = rstd = at::Tensor();
    weight_ = bias_ = Borrowed();
  }

  Borrowed weight_;
  Borrowed bias_;
  Function function_;
};

template <class Function>
auto row_norm_node(const char* name, const NormWeights& affine, Function function) {
  return make_node<RowNormNode<Function>>(name, affine, std::move(function));
}

/// For devices where torch has no kernel.
variable_list rms_norm_gradients(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& rstd,
                                 const at::Tensor& weight, std::int64_t dimensions) {
  std::vector<std::int64_t> dims;
  for (std::int64_t d = 1; d <= dimensions; ++d) dims.push_back(-d);
  const at::Tensor from_above = in_full(gradient);
  const at::Tensor normal = in_full(input) * rstd;
  const at::Tensor weighted = weight.defined() ? from_above * weight : from_above;
  const at::Tensor for_input = (weighted - normal * (weighted * normal).mean(dims, /*keepdim=*/true)) * rstd;
  variable_list result = {for_input.to(input.scalar_type()), at::Tensor()};
  if (weight.defined()) result[1] = at::sum_to(from_above * normal, weight.sizes()).to(weight.scalar_type());
  return result;
}

}  // namespace

Result batch_norm(const Layer& layer, const at::Tensor& input, const NormWeights& affine, const Running& running,
                  bool training, double eps) {
  Forward forward(layer, {input, affine.weight, affine.bias});
  if (!forward.keeps() || input.dim() < 2 || (training && input.numel() == input.size(1))) return std::nullopt;
  const bool keeps_input = needs_gradient(affine.weight) || (training && input.requires_grad());
  const bool with_signs = layer.relu_hint()->follows.exchange(false);
  std::optional<Packed> kept;
  if (keeps_input && training && input.is_cuda()) {
    ReservedPack reserved = forward.reserve(kBatchNorm, {0}, input);
    auto made = normalize_into(reserved.room, input, affine, running, eps, with_signs);
    kept = forward.keep(std::move(reserved), made ? Written::own : Written::nothing);
    if (made) return fused_batch_norm(forward, input, affine, eps, *std::move(made), *kept);
  } else if (keeps_input) {
    kept = forward.keep(kBatchNorm, {0}, input);
  }
  const auto node = make_node<BatchNormNode>(input, affine, training ? Running() : running, training, eps);
  at::Tensor result;
  std::tie(result, node->mean, node->rstd, node->reserve, node->backend) = below_autograd([&] {
    return at::_batch_norm_impl_index(input, affine.weight, affine.bias, running.mean, running.var, training,
                                      running.momentum, eps, at::globalContext().userEnabledCuDNN());
  });
  node->input = std::move(kept);
  forward.connect(node, {input, affine.weight, affine.bias}, result);
  if (training && node->input) {
    offer_recipe(
        *node, result,
        {Recipe::Over::channels, *node->input, node->mean, node->rstd, Borrowed(affine.weight), Borrowed(affine.bias)});
  }
  return result;
}

Result sync_batch_norm(const Layer& layer, const at::Tensor& input, const NormWeights& affine, const Running& running,
                       double eps, const Gather& gather) {
  Forward forward(layer, {input, affine.weight, affine.bias});
  const bool needs_any = needs_gradient(input) || needs_gradient(affine.weight) || needs_gradient(affine.bias);
  if (!forward.keeps() && needs_any && at::GradMode::is_enabled() && input.numel() > 0) return std::nullopt;
  at::Tensor result;
  at::Tensor rstd;
  JointStatistics joint;
  {
    const BelowAutograd below;
    const at::NoGradGuard no_graph;
    joint = joint_statistics(input, gather);
    update(running, joint);
    rstd = at::rsqrt(joint.var + eps);
    result = normalize_channels(input, joint.mean, rstd, affine.weight, affine.bias).to(input.scalar_type());
  }
  if (!forward.keeps()) return result;
  const auto node = make_node<SyncBatchNormNode>(affine.weight, gather);
  node->mean = joint.mean;
  node->rstd = rstd;
  node->count = joint.count;
  node->input = forward.keep(kBatchNorm, {0}, input);
  forward.connect(node, {input, affine.weight, affine.bias}, result);
  offer_recipe(*node, result,
               {Recipe::Over::channels, node->input, joint.mean, rstd, Borrowed(affine.weight), Borrowed(affine.bias)});
  return result;
}

Result layer_norm(const Layer& layer, const at::Tensor& input, at::IntArrayRef shape, const NormWeights& affine,
                  double eps) {
  Forward forward(layer, {input, affine.weight, affine.bias});
  if (!forward.keeps()) return std::nullopt;
  const at::Tensor x = raised_on_cuda(input);
  const NormWeights own = {affine.weight.defined() ? raised_on_cuda(affine.weight) : affine.weight,
                           affine.bias.defined() ? raised_on_cuda(affine.bias) : affine.bias};
  const auto node = row_norm_node(
      "ActzipLayerNorm", own,
      [sizes = shape.vec()](const at::Tensor& gradient, const at::Tensor& values, const at::Tensor& mean,
                            const at::Tensor& rstd, const NormWeights& now, std::array<bool, 3> mask) -> variable_list {
        auto [for_input, for_weight, for_bias] =
            at::native_layer_norm_backward(gradient, values, sizes, mean, rstd, now.weight, now.bias, mask);
        return {for_input, for_weight, for_bias};
      });
  at::Tensor result;
  std::tie(result, node->mean, node->rstd) =
      below_autograd([&] { return at::native_layer_norm(x, shape, own.weight, own.bias, eps); });
  node->input = forward.keep(kLayerNorm, {0}, x);
  forward.connect(node, {x, own.weight, own.bias}, result);
  offer_recipe(*node, result,
               {Recipe::Over::rows, node->input, node->mean, node->rstd, Borrowed(own.weight), Borrowed(own.bias)});
  return result;
}

Result group_norm(const Layer& layer, const at::Tensor& input, std::int64_t groups, const NormWeights& affine,
                  double eps) {
  Forward forward(layer, {input, affine.weight, affine.bias});
  if (!forward.keeps() || input.dim() < 2 || input.size(1) % groups != 0) return std::nullopt;
  const at::Tensor raised = raised_on_cuda(input);
  const NormWeights own = {affine.weight.defined() ? raised_on_cuda(affine.weight) : affine.weight,
                           affine.bias.defined() ? raised_on_cuda(affine.bias) : affine.bias};
  const std::int64_t rows = input.size(0);
  const std::int64_t channels = input.size(1);
  const std::int64_t pixels = input.numel() / (rows * channels);
  const auto node =
      row_norm_node("ActzipGroupNorm", own,
                    [=](const at::Tensor& gradient, const at::Tensor& values, const at::Tensor& mean,
                        const at::Tensor& rstd, const NormWeights& now, std::array<bool, 3> mask) -> variable_list {
                      auto [for_input, for_weight, for_bias] =
                          at::native_group_norm_backward(gradient.contiguous(values.suggest_memory_format()), values,
                                                         mean, rstd, now.weight, rows, channels, pixels, groups, mask);
                      return {for_input, for_weight, for_bias};
                    });
  at::Tensor x;
  at::Tensor result;
  {
    const BelowAutograd below;
    x = raised.contiguous(raised.is_cuda() ? at::MemoryFormat::Contiguous : raised.suggest_memory_format());
    std::tie(result, node->mean, node->rstd) =
        at::native_group_norm(x, own.weight, own.bias, rows, channels, pixels, groups, eps);
  }
  OperatorFacts facts;
  facts.row_elems = channels / groups * pixels;
  node->input = forward.keep(kGroupNorm, {0}, x.is_same(raised) ? raised : x, facts, {});
  forward.connect(node, {raised, own.weight, own.bias}, result);
  return result;
}

Result rms_norm(const Layer& layer, const at::Tensor& input, at::IntArrayRef shape, const at::Tensor& weight,
                std::optional<double> eps) {
  Forward forward(layer, {input, weight});
  const bool is_mixed = weight.defined() && weight.scalar_type() != input.scalar_type();
  if (!forward.keeps() || is_mixed) return std::nullopt;
  const at::Tensor x = raised_on_cuda(input);
  const at::Tensor own = weight.defined() ? raised_on_cuda(weight) : weight;
  const auto node = row_norm_node(
      "ActzipRmsNorm", {own, {}},
      [sizes = shape.vec()](const at::Tensor& gradient, const at::Tensor& values, const at::Tensor& /*mean*/,
                            const at::Tensor& rstd, const NormWeights& now, std::array<bool, 3> mask) -> variable_list {
        if (!values.is_cuda()) {
          return rms_norm_gradients(gradient, values, rstd, now.weight, static_cast<std::int64_t>(sizes.size()));
        }
        auto [for_input, for_weight] =
            at::_fused_rms_norm_backward(gradient, values, sizes, rstd, if_defined(now.weight), {mask[0], mask[1]});
        return {for_input, for_weight};
      });
  at::Tensor result;
  std::tie(result, node->rstd) = below_autograd([&] { return at::_fused_rms_norm(x, shape, if_defined(own), eps); });
  node->input = forward.keep(kRmsNorm, {0}, x);
  forward.connect(node, {x, own}, result);
  offer_recipe(*node, result, {Recipe::Over::rows, node->input, {}, node->rstd, Borrowed(own), Borrowed()});
  return result;
}

}  // namespace actzip::torch::layers
