// Finds out which module's forward runs, through torch's global module hooks while steps are new, and reads what a
// model holds.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "actzip/torch.hpp"

namespace actzip::torch {

/// Registers the current parameters and buffers of `model` with `session`.
void look_at_model(const Session& session, pybind11::handle model);

struct ModulePaths;

/// Until it is removed, on the same thread, what a module's forward saves on this thread carries the module's path.
/// Leaves nothing on the modules: the hooks are torch's global ones. They see the modules of all threads, and serve the
/// watches of the thread that calls them.
class ModuleWatch {
 public:
  ModuleWatch() noexcept;
  /// Also registers the parameters and buffers of `model`. If it throws, no hook remains.
  ModuleWatch(const Session& session, pybind11::handle model);
  ModuleWatch(const ModuleWatch&) = delete;
  ModuleWatch& operator=(const ModuleWatch&) = delete;
  ModuleWatch(ModuleWatch&& other) noexcept;
  ModuleWatch& operator=(ModuleWatch&& other) noexcept;
  ~ModuleWatch();

  /// Says that the forward of `module` is running already.
  void enter(pybind11::handle module) const;

  /// Removes the hooks. Does nothing the second time.
  void remove();

  /// Abandons what it holds without calling Python, which may have shut down.
  void leak() noexcept;

 private:
  std::unique_ptr<ModulePaths> paths_;
};

/// The hooks in torch's tables of global module hooks while any thread watches: always these two objects, under one
/// key.
struct ModuleHooks {
  pybind11::object enter;
  pybind11::object leave;
};
const ModuleHooks& module_hooks();

/// From now on the current watches of this thread ignore modules, and hooks that serve no other watch are removed.
/// Watches of other threads go on. Calls nest; each is undone by one show_module_watches() on the same thread.
void hide_module_watches();
void show_module_watches();

}  // namespace actzip::torch
