// Functions that are known by how many tensors they save.
#pragma once

#include <memory>
#include <vector>

#include "observe/running_operators.hpp"
#include "session/packed.hpp"

namespace actzip::torch {

class SessionImpl;

/// What one call of such a function has saved. It is kept as it is until the function ends, which is at once when it
/// has saved everything: then its row is known, or that it has none.
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
