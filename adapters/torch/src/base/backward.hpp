// Work at the end of a backward, and after an exception inside one.
#pragma once

#include <functional>

namespace actzip::torch {

/// Whether a backward runs on this thread.
bool is_in_backward();

/// Runs `check` when the backward on this thread has finished, before backward() returns; immediately if none runs. An
/// exception from `check` becomes one of backward().
void after_backward(std::function<void()> check);

/// For objects in the autograd graph that compiled autograd cannot trace. Throws, and says what to do instead.
[[noreturn]] void refuse_compiled_autograd();

/// Call it after catching an exception that is not passed on.
void forget_exception();

/// Sets what forget_exception() calls. The Python package sets it once, because an exception that was caught in C++ may
/// still be set as Python's current exception. `forget` is called without the GIL.
void set_exception_forgetter(void (*forget)());

}  // namespace actzip::torch
