#include "session/counted_saves.hpp"

#include <algorithm>

#include "session/session_impl.hpp"

namespace actzip::torch {

Packed CountedSaves::add(const at::Tensor& tensor, const Saver& saver) {
  saves_.push_back({tensor, saver, std::make_shared<Packed>(Packed::as_saved(tensor, saver.op->name))});
  return Packed::later(saves_.back().packed);
}

void CountedSaves::settle() {
  std::vector<bool> is_result;
  Call call;  // the saved tensors in place of arguments
  for (const Save& save : saves_) {
    is_result.push_back(save.saver.slot.value == SlotCode::kResult);
    if (call.count < kMaxArguments) {
      call.tensors[static_cast<std::size_t>(call.count++)] = save.tensor.unsafeGetTensorImpl();
    }
  }
  const OperatorInfo* const known = counted(*saves_[0].saver.op, is_result);
  for (std::size_t i = 0; i < saves_.size(); ++i) {
    Saver saver = saves_[i].saver;
    if (known != nullptr) {
      saver.op = known;
      saver.slot = {static_cast<int>(i)};
      if (known->row->facts != nullptr) known->row->facts(call, nullptr, saver.slot, saver.facts);
    }
    *saves_[i].packed = session_->pack_for(saver, saves_[i].tensor);
  }
}

}  // namespace actzip::torch
