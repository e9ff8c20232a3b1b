#include "layers/recipe.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/batch_norm_elemt.h>
#include <ATen/ops/threshold_backward.h>
#include <c10/core/DeviceGuard.h>

#include <mutex>
#include <utility>
#include <vector>

#include "actzip/row_norm.hpp"
#include "base/convert.hpp"
#include "base/memory.hpp"

namespace actzip::torch::layers {

namespace {

/// The last derived tensor, so that several layers with the same input derive it once. Kept until something else is
/// derived or its recipe is destroyed.
class DerivedCache {
 public:
  at::Tensor find(const Recipe& recipe, c10::ScalarType type, const void* stream) {
    const std::lock_guard lock(mutex_);
    const bool is_it = recipe_ == &recipe && stream_ == stream && values_.scalar_type() == type;
    return is_it && values_._version() == version_ ? values_ : at::Tensor();
  }
  void put(const Recipe& recipe, const at::Tensor& values, const void* stream) {
    at::Tensor old;  // freed after the lock
    const std::lock_guard lock(mutex_);
    old = std::exchange(values_, values);
    recipe_ = &recipe;
    stream_ = stream;
    version_ = values._version();
  }
  void forget(const Recipe& recipe) {
    at::Tensor old;
    const std::lock_guard lock(mutex_);
    if (recipe_ != &recipe) return;
    old = std::exchange(values_, {});
    recipe_ = nullptr;
  }

 private:
  std::mutex mutex_;
  const Recipe* recipe_ = nullptr;
  const void* stream_ = nullptr;  ///< on which the values were computed; they are not ready on others
  at::Tensor values_;
  std::int64_t version_ = 0;
};

DerivedCache& cache() {
  static auto* cache = new DerivedCache;  // never destroyed: it may hold memory of a device
  return *cache;
}

at::Tensor by_rows(const at::Tensor& input, const Recipe& recipe) {
  const at::Tensor weight = recipe.weight.get();
  const at::Tensor bias = recipe.bias.get();
  at::Tensor normal =
      recipe.mean.defined() ? at::addcmul(recipe.mean * -recipe.rstd, input, recipe.rstd) : input * recipe.rstd;
  if (weight.defined() && bias.defined()) return at::addcmul(bias, normal, weight);
  if (weight.defined()) return normal.mul_(weight);
  return bias.defined() ? normal.add_(bias) : normal;
}

}  // namespace

at::Tensor along_channels(const at::Tensor& vector, std::int64_t dimensions) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(dimensions), 1);
  sizes[1] = vector.numel();
  return vector.view(sizes);
}

at::Tensor normalize_channels(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
                              const at::Tensor& weight, const at::Tensor& bias) {
  if (input.is_cuda()) return at::batch_norm_elemt(input, weight, bias, mean, rstd, 0.0);
  const at::Tensor scale = weight.defined() ? rstd * weight : rstd;
  const at::Tensor offset = mean * scale;
  const at::Tensor shift = bias.defined() ? bias - offset : offset.neg();
  return at::addcmul(along_channels(shift, input.dim()), input, along_channels(scale, input.dim()));
}

std::shared_ptr<const Recipe> share(Recipe recipe) {
  return {new Recipe(std::move(recipe)), [](const Recipe* shared) {
            cache().forget(*shared);
            delete shared;
          }};
}

at::Tensor Recipe::result(const at::Tensor& input) const {
  const at::Tensor full = fused                    ? fused->result(input)
                          : over == Over::channels ? normalize_channels(input, mean, rstd, weight.get(), bias.get())
                                                   : by_rows(input, *this);
  const at::Tensor values = full.to(input.scalar_type());
  return mask ? at::threshold_backward(values, mask->unpack(), 0) : values;
}

at::Tensor Recipe::result_of(const Packed& kept, c10::ScalarType type) const {
  at::Tensor values;
  if (fused) values = fused->result(kept, mask);
  if (over == Over::rows && !mask && kept.is_encoded()) values = rows_of(kept, type);
  return (values.defined() ? values : result(kept.unpack())).to(type);
}

/// Computes it in one pass. Undefined if no kernel supports it.
at::Tensor Recipe::rows_of(const Packed& kept, c10::ScalarType type) const {
  const c10::OptionalDeviceGuard guard(kept.device());
  const at::Tensor factor = weight.get();
  const at::Tensor shift = bias.get();
  const at::Tensor values = kept.empty_restored(type);
  const auto dtype = to_dtype(type);
  const auto parameters = to_dtype(factor.defined()  ? factor.scalar_type()
                                   : shift.defined() ? shift.scalar_type()
                                                     : type);
  const bool fits = dtype && parameters && (*parameters == DType::f32 || *parameters == *dtype) &&
                    values.is_contiguous() && rstd.scalar_type() == at::kFloat && rstd.numel() > 0 &&
                    rstd.is_contiguous() && (!mean.defined() || mean.is_contiguous()) &&
                    (!factor.defined() || !shift.defined() || factor.scalar_type() == shift.scalar_type());
  if (!fits) return {};
  const ChannelRows shape{rstd.numel(), values.numel() / rstd.numel(), *dtype};
  const Encoding encoding = kept.encoding();
  const bool is_one_run = encoding.segments == Segments{};
  if (!is_one_run || !can_fuse_batch_norm(encoding.spec, shape, to_device(values.device()))) return {};
  const auto data = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; };
  decode_row_normalized(encoding.spec, shape, encoding.bytes,
                        {.mean = static_cast<const float*>(data(mean)),
                         .inverse_deviation = static_cast<const float*>(data(rstd)),
                         .weight = data(factor),
                         .bias = data(shift),
                         .parameters = *parameters},
                        values.mutable_data_ptr(), encoding.seed, current_stream(values.device()));
  return values;
}

std::shared_ptr<const Recipe> recipe_of(const at::Tensor& tensor) {
  const auto node = tensor.grad_fn();
  const auto* layer = dynamic_cast<const LayerNode*>(node.get());
  if (layer == nullptr || !layer->recipe || tensor.output_nr() != 0) return nullptr;
  return layer->result.fits(tensor) ? layer->recipe : nullptr;
}

Input::Input(Forward& forward, const OperatorInfo& op, const at::Tensor& given, const at::Tensor& used)
    : type_(used.scalar_type()) {
  if (forward.layer().options().derive) recipe_ = recipe_of(given);
  packed_ = forward.keep(
      op, {0}, used,
      {.source = recipe_ ? &recipe_->source : nullptr, .cast_from = used.is_same(given) ? nullptr : &given});
  if (!packed_.is_derived()) recipe_.reset();
}

at::Tensor Input::restore() const {
  if (!recipe_) return packed_.unpack_as_tried();
  if (is_trying()) return recipe_->result(packed_.unpack_as_tried()).to(type_);
  packed_.check_version();
  const void* stream = current_stream(packed_.device()).handle();
  at::Tensor values = cache().find(*recipe_, type_, stream);
  if (!values.defined()) {
    values = recipe_->result_of(packed_, type_);
    cache().put(*recipe_, values, stream);
  }
  return values;
}

}  // namespace actzip::torch::layers
