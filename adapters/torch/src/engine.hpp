// How torch asks us for hooks: a forwarding autograd engine around the one that was there.
#pragma once

#include <c10/util/python_stub.h>

#include <functional>
#include <memory>

#include "session_impl.hpp"

namespace actzip::torch {

/// Puts our engine in front of torch's, once; later calls do nothing. It forwards everything but the question which
/// hooks a saved variable gets, and stays until the process ends.
void install_engine();

/// Who gets what autograd saves on this thread now.
struct Saving {
  std::shared_ptr<SessionImpl> session;  ///< of the innermost scope, if that is ours
  bool is_others = false;                ///< hooks that are not ours, a transform that forbids hooks, or a tracer
};
Saving who_saves();

/// Runs `check` when the backward that runs on this thread has ended, before its caller gets on; at once outside of
/// any. What it throws, backward throws.
void after_backward(std::function<void()> check);

/// What only Python can tell. Called without the interpreter's lock.
struct PythonSide {
  /// The session behind the top of torch's own stack of Python hooks; null if somebody else pushed it.
  std::shared_ptr<SessionImpl> (*session_of)(PyObject* pack_hook) = nullptr;
  /// An exception that came through C++ is dropped; Python may still hold it as its own.
  void (*forget_exception)() = nullptr;
};

/// Set once, by the Python package.
void set_python_side(const PythonSide& side);

/// After an exception was caught that nobody is to hear of.
void forget_exception();

}  // namespace actzip::torch
