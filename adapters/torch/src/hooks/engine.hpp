// The autograd engine in front of torch's, through which torch gets our saved-tensor hooks.
#pragma once

#include <c10/util/python_stub.h>

#include <memory>

#include "session/session_impl.hpp"

namespace actzip::torch {

/// Puts our engine in front of torch's when the first session is made; later calls do nothing. It forwards everything
/// except the question which hooks a saved variable gets, and stays until the process ends. Throws as
/// install_encoded_tensors().
void install_engine();

/// Where tensors go that autograd saves on this thread now.
struct Saving {
  std::shared_ptr<SessionImpl> session;  ///< of the innermost scope; null if there is none of ours
  bool is_others = false;                ///< foreign hooks, a transform that forbids hooks, or a tracer
};
Saving who_saves();

/// Returns the session whose scope pushed `pack_hook` onto torch's own stack of Python hooks; null for foreign hooks.
/// Called without the GIL.
using SessionOfHook = std::shared_ptr<SessionImpl> (*)(PyObject* pack_hook);

/// Sets how Python's hooks are recognised. The Python package calls it once.
void set_session_of_hook(SessionOfHook session_of);

}  // namespace actzip::torch
