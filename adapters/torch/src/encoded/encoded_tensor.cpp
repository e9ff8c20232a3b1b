#include "encoded/encoded_tensor.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include <string_view>
#include <utility>

#include "actzip/error.hpp"
#include "encoded/encoded_backward.hpp"

namespace actzip::torch {

namespace {

/// The last of the backends that torch leaves to other libraries. Devices with kernels of ours do not use it.
constexpr auto kBackend = c10::DispatchKey::PrivateUse3;
constexpr auto kBackendBit = c10::BackendComponent::PrivateUse3Bit;

class EncodedImpl final : public c10::TensorImpl {
 public:
  explicit EncodedImpl(Encoded encoded)
      : TensorImpl(keys_for(encoded.packed.device()), c10::scalarTypeToTypeMeta(encoded.packed.type()),
                   encoded.packed.device()),
        encoded_(std::move(encoded)) {
    set_storage_access_should_throw();
    const Shape& shape = encoded_.packed.shape();
    const auto rank = static_cast<std::size_t>(shape.rank);
    set_sizes_and_strides({shape.sizes.data(), rank}, {shape.strides.data(), rank});
  }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow_change) const override {
    return copy(version, allow_change);
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow_change) const override {
    return copy(std::move(version), allow_change);
  }

  [[nodiscard]] const Encoded& encoded() const { return encoded_; }

 private:
  /// Includes the device's own key, so that the tensor reports its device; our key has priority.
  static c10::DispatchKeySet keys_for(c10::Device device) {
    const auto own = device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
    return c10::DispatchKeySet(own) | c10::DispatchKeySet(kBackend);
  }

  template <class Version>
  [[nodiscard]] c10::intrusive_ptr<TensorImpl> copy(Version&& version, bool allow_change) const {
    auto impl = c10::make_intrusive<EncodedImpl>(encoded_);
    copy_tensor_metadata(this, impl.get(), std::forward<Version>(version), allow_change);
    return impl;
  }

  Encoded encoded_;
};

/// Decodes encoded tensors in `argument`. Returns whether there were any.
bool decode_in(c10::IValue& argument) {
  if (argument.isTensor()) {
    if (encoded_in(argument.toTensor()) == nullptr) return false;
    argument = decoded(argument.toTensor());
    return true;
  }
  if (!argument.isList()) return false;
  bool found = false;
  auto list = argument.toList().copy();  // the caller's list must not change
  for (std::size_t i = 0; i < list.size(); ++i) {
    c10::IValue element = list.get(i);
    if (!decode_in(element)) continue;
    list.set(i, element);
    found = true;
  }
  if (found) argument = std::move(list);
  return found;
}

/// Registers decode_and_call() for operators that have one kernel of torch's for all backends. That kernel takes
/// precedence over a fallback, and some of them read memory.
void decode_for_common_kernels(::torch::Library& library) {
  constexpr std::string_view kNamespace = "aten::";
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!op || !name.name.starts_with(kNamespace) || op->hasKernelForDispatchKey(kBackend)) continue;
    const bool is_common = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
                           op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
    if (!is_common) continue;
    library.impl(c10::toString(name).substr(kNamespace.size()).c_str(),
                 ::torch::CppFunction::makeFromBoxedFunction<&decode_and_call>());
  }
}

void check_backend_is_free() {
  if (!c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kBackend)) return;
  throw Error(ErrorCode::backend_unavailable,
              c10::str("another library in this process has taken torch's private backend ", kBackend,
                       ", which actzip needs for itself (allowed: PrivateUse1 and PrivateUse2 for others)"));
}

std::vector<::torch::Library> registered() {
  check_backend_is_free();
  std::vector<::torch::Library> libraries;
  // If a call also has a sparse or nested argument, it is dispatched to other keys of the same backend.
  for (const auto key : {kBackend, c10::DispatchKey::SparsePrivateUse3, c10::DispatchKey::SparseCsrPrivateUse3,
                         c10::DispatchKey::NestedTensorPrivateUse3}) {
    auto& others = libraries.emplace_back(::torch::Library::IMPL, "_", key, __FILE__, __LINE__);
    others.fallback(::torch::CppFunction::makeFromBoxedFunction<&decode_and_call>());
  }
  auto& known = libraries.emplace_back(::torch::Library::IMPL, "aten", kBackend, __FILE__, __LINE__);
  add_backward_kernels(known);
  decode_for_common_kernels(known);
  return libraries;
}

/// Whether an operator may get the tensor encoded now. Not if gradients are enabled, since differentiating twice saves
/// it again; and not in a mode, which inspects every argument.
bool can_stay_encoded(const Packed& packed) {
  return packed.is_encoded() && !packed.is_derived() && packed.device().is_cuda() && !is_trying() &&
         !c10::isComplexType(packed.type()) && packed.witness() == nullptr && !at::GradMode::is_enabled() &&
         !c10::impl::TorchDispatchModeTLS::any_modes_set();
}

}  // namespace

at::Tensor encoded_tensor(Encoded encoded) {
  encoded.packed.check_version();
  return at::detail::make_tensor<EncodedImpl>(std::move(encoded));
}

const Encoded* encoded_in(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has_backend(kBackendBit)) return nullptr;
  const auto* impl = dynamic_cast<const EncodedImpl*>(tensor.unsafeGetTensorImpl());
  return impl != nullptr ? &impl->encoded() : nullptr;
}

at::Tensor decoded(const at::Tensor& tensor) {
  const Encoded* encoded = encoded_in(tensor);
  if (encoded == nullptr) return tensor;
  const at::Tensor values = encoded->packed.unpack();
  return encoded->scale == 1.0 ? values : values * encoded->scale;
}

void decode_and_call(const c10::OperatorHandle& op, ::torch::jit::Stack* stack) {
  bool found = false;
  const std::size_t count = op.schema().arguments().size();
  for (std::size_t i = stack->size() - count; i < stack->size(); ++i) found = decode_in((*stack)[i]) || found;
  TORCH_CHECK_NOT_IMPLEMENTED(found, "actzip: ", op.schema().name(), " has no kernel for ", kBackend);
  op.callBoxed(stack);
}

at::Tensor for_known_operator(const Packed& packed) {
  return can_stay_encoded(packed) ? encoded_tensor({packed}) : packed.unpack_as_tried();
}

at::Tensor for_current_node(const Packed& packed) {
  if (!can_stay_encoded(packed)) return packed.unpack_as_tried();
  const auto node = ::torch::autograd::get_current_node();
  return node && calls_known_operator(*node) ? encoded_tensor({packed}) : packed.unpack_as_tried();
}

void install_encoded_tensors() {
  static const auto* const libraries = new auto(registered());  // never destroyed, like torch's own
  (void)libraries;
}

}  // namespace actzip::torch
