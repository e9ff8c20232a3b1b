#include "session.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "actzip/error.hpp"
#include "convert.hpp"
#include "memory.hpp"
#include "parameters.hpp"
#include "python_tensors.hpp"

namespace actzip::paddle_adapter {

namespace {

/// Why no codec supports this kind of tensor; empty if one does.
std::string_view unsupported_reason(const phi::DenseTensor& tensor) {
  if (!to_dtype(tensor.dtype())) return "of a type that no codec takes";
  if (tensor.layout() == phi::DataLayout::ONEDNN) return "in a layout of oneDNN's";
  if (tensor.dims().size() > kMaxRank) return "of too many dimensions";
  if (tensor.numel() == 0) return "without elements";
  return "";
}

Packed::Backward backward_of(const Operator& op) {
  if (op.is_foreign) return Packed::Backward::asks;
  // An unknown operator may write into what it saved, as Paddle does if it takes the memory to be unshared.
  return op.row == nullptr || op.row->writes_saved ? Packed::Backward::writes : Packed::Backward::reads;
}

}  // namespace

std::uintptr_t MemoryNumbers::number_of(const std::shared_ptr<phi::Allocation>& memory) {
  Entry& entry = entries_[memory.get()];
  if (entry.number == 0 || entry.memory.expired()) entry = {memory, ++last_};
  return entry.number;
}

void MemoryNumbers::forget_freed() {
  std::erase_if(entries_, [](const auto& entry) { return entry.second.memory.expired(); });
}

void PaddleSession::begin_step() {
  core_.begin_step();
  ++step_;
  modules_.clear();
  saw_module_ = false;
  last_op_ = nullptr;
  numbers_.forget_freed();
  // Paddle's nodes cannot run again with other noise, so no step can be observed.
  if (core_.wants_observation()) core_.skip_observation();
}

void PaddleSession::set_parameters(const std::vector<std::shared_ptr<phi::Allocation>>& memories) {
  parameters_.clear();
  for (const auto& memory : memories) parameters_.emplace(memory.get(), memory);
}

void PaddleSession::leave_module(const std::string* path) {
  const auto found = std::find(modules_.rbegin(), modules_.rend(), path);
  if (found != modules_.rend()) modules_.erase(std::prev(found.base()), modules_.end());
}

const std::string* PaddleSession::module_path(const std::string& path) {
  auto& place = paths_[path];
  if (!place) place = std::make_unique<std::string>(path);
  return place.get();
}

std::size_t PaddleSession::Hash::operator()(const SiteAddress& address) const noexcept {
  const auto module = reinterpret_cast<std::uintptr_t>(address.module);
  const auto op = reinterpret_cast<std::uintptr_t>(address.op);
  return ((module * 31 + op) * 31 + static_cast<std::size_t>(address.slot)) * 0x9E3779B97F4A7C15ULL >> 16U;
}

PaddleSession::SiteGroup& PaddleSession::group_of(const Saver& saver, int rank) {
  const Slot slot = slot_of(saver.op->row, saver.slot);
  const bool fits = rank >= slot.least_rank;
  const SiteAddress address{modules_.empty() ? nullptr : modules_.back(), saver.op,
                            fits ? saver.slot : -1 - saver.slot};
  const auto [found, is_new] = groups_.try_emplace(address);
  SiteGroup& group = found->second;
  if (is_new) {
    group.use = saver.op->is_foreign ? Use::foreign : fits ? slot.use : Use::unknown;
    group.slot = fits && !slot.name.empty() ? std::string(slot.name) : "saved" + std::to_string(saver.slot);
  }
  return group;
}

SiteId PaddleSession::next_in(SiteGroup& group, const Saver& saver) {
  if (group.step != step_) group.next = 0;
  group.step = step_;
  if (group.next == group.ids.size()) {
    const std::string_view path = modules_.empty() ? std::string_view() : std::string_view(*modules_.back());
    group.ids.push_back(core_.site({path, saver.op->name, group.slot, static_cast<int>(group.next), group.use}));
  }
  return group.ids[group.next++];
}

std::string_view PaddleSession::parameter_reason(PyObject* object, const phi::DenseTensor& tensor, Use use) const {
  const auto known = parameters_.find(tensor.Holder().get());
  if (known != parameters_.end() && !known->second.expired()) return "a parameter or buffer of the model";
  return reason_to_be_parameter(object, use, tensor.numel() >= least_elems_);
}

/// An operator saves its tensors in a fixed order, so an earlier slot or the same one belongs to a new call.
void PaddleSession::note_call(const Saver& saver, SavedTensor& saved) {
  if (saver.op != last_op_ || saver.slot <= call_.slot) {
    last_op_ = saver.op;
    call_ = {saver.slot, saved.view.shape, saved.identity.address, saved.role == Role::parameter};
  }
  call_.slot = saver.slot;
  const OperatorRow* const row = saver.op->row;
  if (row != nullptr && row->facts != nullptr) {
    row->facts(call_, saved.view.shape, saved.identity.address, saved.facts);
  }
}

SavedTensor PaddleSession::describe(PyObject* object, const phi::DenseTensor& tensor, const Saver& saver, Use use) {
  SavedTensor saved;
  saved.view.dtype = to_dtype(tensor.dtype()).value_or(DType::u8);
  // Dropout masks are bytes of 0 and 1.
  if (use == Use::dropout_mask && saved.view.dtype == DType::u8) saved.view.dtype = DType::boolean;
  saved.bytes = static_cast<std::size_t>(tensor.numel()) * phi::SizeOf(tensor.dtype());
  saved.role_reason = unsupported_reason(tensor);
  if (!saved.role_reason.empty()) {
    saved.role = Role::unsupported;
    return saved;
  }
  saved.view.shape = to_shape(tensor.meta());
  saved.role_reason = parameter_reason(object, tensor, use);
  if (!saved.role_reason.empty()) {
    saved.role = Role::parameter;
    saved.bytes = 0;
  } else {
    saved.view.data = tensor.data();
    saved.identity.address = numbers_.number_of(tensor.Holder());
    saved.version = const_cast<phi::DenseTensor&>(tensor).InplaceVersionCounter().CurrentVersion();
  }
  saved.facts.after_model = modules_.empty() && saw_module_;
  saw_module_ |= !modules_.empty();
  note_call(saver, saved);
  return saved;
}

std::shared_ptr<Packed> PaddleSession::pack(PyObject* object) noexcept {
  const auto& tensor = static_cast<const phi::DenseTensor&>(*paddle::pybind::CastPyArg2Tensor(object, 0).impl());
  const Saver saver = current_saver(tensor.dims().size());
  auto packed = std::make_shared<Packed>(tensor, backward_of(*saver.op));
  try {
    if (tensor.place().GetType() != phi::AllocationType::CPU) {
      throw Error(ErrorCode::backend_unavailable,
                  "actzip.paddle: a tensor on " + tensor.place().DebugString() +
                      " was saved (allowed: tensors of the CPU; the adapter is built without CUDA)");
    }
    SiteGroup& group = group_of(saver, tensor.dims().size());
    const SiteId site = next_in(group, saver);
    const SavedTensor saved = describe(object, tensor, saver, group.use);
    packed->keep(core_.keep(site, saved, cpu_stream(), paddle_memory()), saved.view.dtype);
  } catch (const std::exception& error) {
    if (fault_.empty()) fault_ = error.what();
  }
  return packed;
}

}  // namespace actzip::paddle_adapter
