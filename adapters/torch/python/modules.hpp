// Which module's forward runs: torch's global module hooks, while a scope is new, and what a model holds.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "actzip/torch.hpp"

namespace actzip::torch {

/// Registers the parameters and buffers of `model` as they are now.
void look_at_model(const Session& session, pybind11::handle model);

struct ModulePaths;

/// What a module's forward saves on this thread carries the module's path, until it is removed, on the same thread.
/// Nothing is left on the modules. Its hooks are torch's global ones; they see the modules of every thread, and serve
/// the watches of the thread that calls them.
class ModuleWatch {
 public:
  ModuleWatch() noexcept;
  /// Registers the parameters and buffers of `model`, too. If it throws, no hook is left.
  ModuleWatch(const Session& session, pybind11::handle model);
  ModuleWatch(const ModuleWatch&) = delete;
  ModuleWatch& operator=(const ModuleWatch&) = delete;
  ModuleWatch(ModuleWatch&& other) noexcept;
  ModuleWatch& operator=(ModuleWatch&& other) noexcept;
  ~ModuleWatch();

  /// Says that the forward of `module` runs already.
  void enter(pybind11::handle module) const;

  /// Takes the hooks away. Does nothing the second time.
  void remove();

  /// Gives up what it holds without telling Python, which may be gone.
  void leak() noexcept;

 private:
  std::unique_ptr<ModulePaths> paths_;
};

/// What is in torch's tables of global module hooks while anybody watches: always these two, under one key.
struct ModuleHooks {
  pybind11::object enter;
  pybind11::object leave;
};
const ModuleHooks& module_hooks();

/// From here on the watches that this thread has now are told of no modules, and hooks that serve nobody else are taken
/// down. Other threads' watches go on. May be nested; each is undone by one show_module_watches() on the same thread.
void hide_module_watches();
void show_module_watches();

}  // namespace actzip::torch
