// Autograd functions that are recognised by the number of tensors they save.
#pragma once

#include <memory>
#include <vector>

#include "observe/running_operators.hpp"
#include "session/packed.hpp"

namespace actzip::torch {

class SessionImpl;

/// What one call of such a function saves. The tensors are kept as they are until the function ends, right after its
/// last save. Then their number is known, and with it the function's row, if it has one.
class CountedSaves final : public LateSaves {
 public:
  explicit CountedSaves(std::shared_ptr<SessionImpl> session) : session_(std::move(session)) {}

  Packed add(const at::Tensor& tensor, const Saver& saver);
  void settle() override;

 private:
  struct Save {
    at::Tensor tensor;
    Saver saver;
    std::shared_ptr<Packed> packed;
  };
  std::shared_ptr<SessionImpl> session_;
  std::vector<Save> saves_;
};

}  // namespace actzip::torch
