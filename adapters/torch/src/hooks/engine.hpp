// How torch asks us for hooks: a forwarding autograd engine around the one that was there.
#pragma once

#include <c10/util/python_stub.h>

#include <memory>

#include "session/session_impl.hpp"

namespace actzip::torch {

/// Puts our engine in front of torch's, once, when the first session is made; later calls do nothing. It forwards
/// everything but the question which hooks a saved variable gets, and stays until the process ends. Throws as
/// install_encoded_tensors().
void install_engine();

/// Who gets what autograd saves on this thread now.
struct Saving {
  std::shared_ptr<SessionImpl> session;  ///< of the innermost scope, if that is ours
  bool is_others = false;                ///< hooks that are not ours, a transform that forbids hooks, or a tracer
};
Saving who_saves();

/// The session behind the top of torch's own stack of Python hooks; null if somebody else pushed it. Called without the
/// interpreter's lock.
using SessionOfHook = std::shared_ptr<SessionImpl> (*)(PyObject* pack_hook);

/// Set once, by the Python package.
void set_session_of_hook(SessionOfHook session_of);

}  // namespace actzip::torch
