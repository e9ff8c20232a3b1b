// How a session describes a tensor to the core.
#include <c10/core/DispatchKeySet.h>

#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/convert.hpp"
#include "observe/memory_log.hpp"
#include "session/complex_pairs.hpp"
#include "session/session_impl.hpp"

namespace actzip::torch {

namespace {

/// Keys of tensors that wrap others.
constexpr c10::DispatchKeySet kWrappers({c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchBatched,
                                         c10::DispatchKey::Batched});

/// Whether its elements lie in memory of its own. Those of wrappers, of the zeros of forward-mode differentiation, and
/// of storages that were freed do not.
bool has_memory(const at::Tensor& tensor) {
  if (!tensor.has_storage() || tensor.key_set().has_any(kWrappers) || tensor._is_zerotensor()) return false;
  return tensor.numel() == 0 || tensor.const_data_ptr() != nullptr;
}

/// Why no codec supports this kind of tensor; empty if one does.
std::string_view unsupported_reason(const at::Tensor& tensor, Use use) {
  const auto keys = tensor.key_set();
  if (keys.has(c10::DispatchKey::Python)) return "a tensor subclass";
  if (tensor.layout() != c10::kStrided || tensor.is_nested()) return "not a dense tensor";
  if (!tensor.device().is_cpu() && !tensor.device().is_cuda()) return "neither on the CPU nor on CUDA";
  if (!has_memory(tensor)) return "without memory of its own";
  const bool is_complex = part_dtype(tensor.scalar_type()).has_value();
  if (!is_complex && !to_dtype(tensor.scalar_type())) return "of a type that no codec takes";
  if (is_complex && !takes_pairs(use)) return "complex, and more than its parts matters";
  if (tensor.is_neg()) return "lazily negated";
  if (tensor.dim() > (is_complex ? kMaxRank - 1 : kMaxRank)) return "of too many dimensions";
  return "";
}

/// Two casts of the same source are equal only if nothing wrote into the source between them, nor into either of them
/// since. That is known only while a scope is open, since the log of writes is kept by its callbacks.
CastSource cast_source(const at::Tensor& tensor, const at::Tensor* cast_from) {
  MemoryLog* const log = memory_log();
  if (log == nullptr || memory_version(tensor) != 0) return {};
  if (cast_from != nullptr) return {log->casts_of(*cast_from), tensor.storage_offset()};
  const NodePtr node = cast_node(tensor);
  return {node ? log->casts_by(*node) : 0, tensor.storage_offset()};
}

/// Whether its memory can be identified, whatever its type.
bool is_plain_memory(const at::Tensor& tensor) {
  return has_plain_sizes(*tensor.unsafeGetTensorImpl()) && tensor.layout() == c10::kStrided &&
         (tensor.device().is_cpu() || tensor.device().is_cuda()) && has_memory(tensor) && tensor.dim() <= kMaxRank;
}

/// 0 if it has no storage, or if it is not safe to ask for its sizes.
std::size_t bytes_of(const at::Tensor& tensor) {
  const bool is_known = tensor.has_storage() && has_plain_sizes(*tensor.unsafeGetTensorImpl());
  return is_known ? static_cast<std::size_t>(tensor.numel()) * tensor.element_size() : 0;
}

/// Whether no gradient flows through it: a batch, its labels, a mask. Inside a custom function only views have a graph.
bool is_input(const at::Tensor& tensor) {
  if (tensor.requires_grad()) return false;
  return !tensor.is_view() || !tensor._base().requires_grad();
}

/// Fills in what identifies the tensor's memory, by which saves are shared.
void describe_memory(const at::Tensor& tensor, SavedTensor& saved) {
  saved.view.shape = to_shape(tensor);
  saved.view.data = tensor.const_data_ptr();
  saved.view.device = to_device(tensor.device());
  saved.identity = storage_identity(tensor);
  saved.version = memory_version(tensor);
}

/// Describes complex elements as pairs of real ones; counts of elements double.
void describe_pairs(SavedTensor& saved, DType part) {
  saved.view.dtype = part;
  saved.view.shape = with_pairs(saved.view.shape);
  saved.facts.row_elems *= 2;
  saved.facts.meets_elems *= 2;
}

/// Whether the gradient at a NaN depends on its place: on the CPU, torch's vectorised loop stops it and the scalar loop
/// for the remainder lets it pass.
bool is_torn_at_nan(const OperatorInfo& op, const at::Tensor& tensor) {
  return tensor.is_cpu() && op.row != nullptr && op.row->is_torn_at_nan;
}

/// Whether the bound of the indices is known only from their values.
bool is_bound_by_values(const OperatorInfo& op, const SavedTensor& saved) {
  const bool is_index = saved.view.dtype == DType::i64 || saved.view.dtype == DType::i32;
  return is_index && op.row != nullptr && op.row->bound_by_values && saved.facts.index_bound == 0;
}

/// The bound, rounded up to a power of two; 0 if an index is negative. Also 0 on a GPU, where reading it would wait.
std::int64_t bound_of(const at::Tensor& indices) {
  if (!indices.is_cpu() || indices.numel() == 0) return 0;
  const at::NoGradGuard no_graph;
  const Unheard unheard;
  const auto [least, greatest] = indices.aminmax();
  if (least.item<std::int64_t>() < 0 || greatest.item<std::int64_t>() >= Index{}.bound) return 0;
  return std::int64_t{1} << index_bits(greatest.item<std::int64_t>() + 1);
}

bool has_nan(const at::Tensor& tensor) {
  const at::NoGradGuard no_graph;
  const Unheard unheard;
  return tensor.numel() > 0 && std::isnan(tensor.max().item<float>());  // max() is NaN if any element is
}

}  // namespace

SavedTensor SessionImpl::describe(const at::Tensor& tensor, const Saver& saver, const Place& place,
                                  const PackHelp& help) const {
  SavedTensor saved;
  saved.facts = saver.facts;
  saved.facts.after_model = place.is_in_loss;
  saved.view.dtype = to_dtype(tensor.scalar_type()).value_or(DType::u8);
  saved.role_reason = unsupported_reason(tensor, place.group->use);
  if (!saved.role_reason.empty()) {
    saved.role = Role::unsupported;
    saved.bytes = bytes_of(tensor);
    if (is_plain_memory(tensor)) describe_memory(tensor, saved);
    return saved;
  }
  saved.view.shape = to_shape(tensor);
  saved.role_reason = parameter_reason(tensor, parameters, place.group->weight_slot);
  if (!saved.role_reason.empty()) {
    saved.role = Role::parameter;
    if (is_computed(tensor, parameters)) {
      saved.bytes = tensor.nbytes();
      describe_memory(tensor, saved);
    }
    return saved;
  }
  describe_memory(tensor, saved);
  if (tensor.is_complex()) describe_pairs(saved, *part_dtype(tensor.scalar_type()));
  saved.is_input = is_input(tensor);
  saved.source = cast_source(tensor, help.cast_from);
  if (is_torn_at_nan(*saver.op, tensor) && has_nan(tensor)) saved.facts.asks_one_bit = false;
  if (is_bound_by_values(*saver.op, saved)) saved.facts.index_bound = bound_of(tensor);
  saved.samples = samples->batch(tensor.device());
  return saved;
}

}  // namespace actzip::torch
