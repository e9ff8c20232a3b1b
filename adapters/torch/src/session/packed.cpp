#include "session/packed.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cmath>

#include "base/backward.hpp"
#include "base/convert.hpp"
#include "base/memory.hpp"

namespace actzip::torch {

namespace {

at::Tensor tensor_on(const c10::Storage& storage, c10::ScalarType type, const Shape& shape) {
  const auto key = c10::computeDispatchKey(type, c10::kStrided, storage.device());
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key),
                                                         c10::scalarTypeToTypeMeta(type));
  const auto rank = static_cast<std::size_t>(shape.rank);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides({shape.sizes.data(), rank}, {shape.strides.data(), rank});
  return tensor;
}

}  // namespace

c10::OptionalDeviceGuard guard_for(c10::Device device) {
  return device.is_cpu() ? c10::OptionalDeviceGuard() : c10::OptionalDeviceGuard(device);
}

Packed Packed::as_saved(const at::Tensor& tensor, const std::string& function) {
  Packed packed;
  packed.note_version(tensor);
  packed.kept_.site = std::make_shared<const std::string>(function);
  packed.as_is_ = tensor.grad_fn() ? tensor.tensor_data() : tensor;  // a result would hold its own node
  return packed;
}

Packed Packed::later(std::shared_ptr<const Packed> packed) {
  Packed later;
  later.later_ = std::move(packed);
  return later;
}

Packed Packed::for_another() const {
  Packed packed = *this;
  if (as_is_.defined()) packed.as_is_ = as_is_.tensor_data();
  return packed;
}

void Packed::note_version(const at::Tensor& tensor) {
  has_version_ = !tensor.is_inference();
  if (!has_version_) return;
  counter_ = tensor.unsafeGetTensorImpl()->version_counter();
  version_ = counter_.current_version();
}

void Packed::check_version() const {
  if (!has_version_ || counter_.current_version() == version_) return;
  TORCH_CHECK(false, "one of the variables needed for gradient computation has been modified by an inplace operation: ",
              "what ", *kept_.site, " saved is at version ", counter_.current_version(), "; expected version ",
              version_, " instead.");
}

/// Of the storage's references, the saves that share this blob and a witness account for `own`; more mean that the
/// program still holds the input.
void Packed::note_holder() const {
  if (!is_input_ || !kept_.blob || slice_) return;
  const bool is_witnessed = witness_ && witness_->saved().defined();
  const auto own = as_is_.defined() ? static_cast<std::size_t>(kept_.blob.use_count()) : std::size_t{is_witnessed};
  actzip::note_holder(kept_, (as_is_.defined() ? as_is_.storage().use_count() : input_.use_count()) > own);
}

at::Tensor Packed::unpack() const {
  check_version();
  note_holder();
  if (is_recomputed()) return call_->compute(part_);
  if (!slice_ && !as_is_.defined()) return restored();
  note_asked(kept_);
  return slice_ ? slice_->tensor() : as_is_;
}

at::Tensor Packed::unpack_as_tried() const {
  const bool is_exact = witness_ && is_called(*witness_);
  at::Tensor tensor = is_exact ? witness_->saved() : as_tried(unpack(), site_, kept_.trial.get());
  if (witness_) witness_->note_restored(tensor);
  if (call_) call_->note_restored(part_, tensor);
  return tensor;
}

/// Noise from different sites is assumed to pass through a node alike, so each gets the strength of the noise that the
/// site adds anyway: the site that matters most then decides how noise passes. A site that is kept exactly still gets a
/// little, since the sites below it could not be judged otherwise.
std::optional<TriedSave> Packed::tried() const {
  constexpr double kLeast = 0x1p-14;
  if (!kept_.trial) return std::nullopt;
  const TrialNoise& trial = *kept_.trial;
  return TriedSave{site_, trial.error, std::sqrt(std::max(trial.kept_error / trial.error, kLeast))};
}

/// Differentiating a gradient again would differentiate the compressed values: their error would enter the loss itself,
/// and no number of steps would average it out.
void Packed::check_differentiated_once() const {
  const bool again =
      at::GradMode::is_enabled() && is_in_backward() && ::torch::autograd::get_current_graph_task_keep_graph();
  TORCH_CHECK(!again || !is_lossy(kept_), "actzip: backward with create_graph=True asks for what ", *kept_.site,
              " saved, of which a few bits are kept; their error would enter the loss itself (allowed: this forward "
              "outside of the scope, or preset=\"exact\")");
}

at::Tensor Packed::empty_restored(c10::ScalarType type) const {
  const auto rank = static_cast<std::size_t>(shape_.rank);
  return at::empty_strided({shape_.sizes.data(), rank}, {shape_.strides.data(), rank},
                           at::TensorOptions().dtype(type).device(device_));
}

at::Tensor Packed::restored() const {
  const at::Tensor dense = restored_dense();
  const at::Tensor tensor = gapped_ ? with_strides(dense, *gapped_) : dense;
  return is_conjugated_ ? tensor.conj() : tensor;
}

at::Tensor Packed::restored_dense() const {
  const auto guard = guard_for(device_);
  // Allocated but never written: a kernel that needs only the shape may still read it.
  if (kept_.how == Keep::shape_only) return empty_restored();
  check_differentiated_once();
  const ProfileRange range("decode", [&]() -> const std::string& { return *kept_.site; });
  const Allocation values = restore(kept_, current_stream(device_), torch_memory());
  if (const auto check = index_check(kept_)) after_backward([check] { check->finish(torch_memory()); });
  const OwnedStorage& owner = owner_of(values);
  at::Tensor tensor = tensor_on(owner.storage, type_, shape_);
  tensor.unsafeGetTensorImpl()->set_version_counter(owner.version);
  return tensor;
}

Encoding Packed::encoding() const {
  check_version();
  return encoding_of(kept_, current_stream(device_), torch_memory());
}

}  // namespace actzip::torch
