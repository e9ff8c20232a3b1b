// Which module's forward runs: torch's global module hooks, while a scope is new, and what a model holds.
#pragma once

#include <pybind11/pybind11.h>

#include "actzip/torch.hpp"

namespace actzip::torch {

/// Registers the parameters and buffers of `model` as they are now.
void look_at_model(const Session& session, pybind11::handle model);

/// What a module's forward saves on this thread carries the module's path, until it is removed. Nothing is left on the
/// modules. Its hooks are torch's global ones; they see the modules of every thread, and pass over those of others.
class ModuleWatch {
 public:
  ModuleWatch() = default;
  /// Registers the parameters and buffers of `model`, too. If it throws, no hook is left.
  ModuleWatch(const Session& session, pybind11::handle model);
  ModuleWatch(const ModuleWatch&) = delete;
  ModuleWatch& operator=(const ModuleWatch&) = delete;
  ModuleWatch(ModuleWatch&&) = default;
  ModuleWatch& operator=(ModuleWatch&&) = default;
  ~ModuleWatch() = default;

  /// Says that the forward of `module` runs already.
  void enter(pybind11::handle module) const;

  /// Takes the hooks away. Does nothing the second time.
  void remove();

  /// Gives up what it holds without telling Python, which may be gone.
  void leak() noexcept;

 private:
  pybind11::object enter_;
  pybind11::object enter_handle_;
  pybind11::object leave_handle_;
};

}  // namespace actzip::torch
