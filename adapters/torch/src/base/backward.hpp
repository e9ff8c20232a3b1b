// What is done at the end of a backward, and after an exception in the middle of one.
#pragma once

#include <functional>

namespace actzip::torch {

/// Whether a backward runs on this thread.
bool is_in_backward();

/// Runs `check` when the backward that runs on this thread has ended, before its caller gets on; at once outside of
/// any. What it throws, backward throws.
void after_backward(std::function<void()> check);

/// For what stands in the graph of a step and cannot be traced: throws, and says what to write.
[[noreturn]] void refuse_compiled_autograd();

/// After an exception was caught that nobody is to hear of.
void forget_exception();

/// Set once, by the Python package: an exception that came through C++ is dropped, but Python may still hold it as its
/// own. Called without the interpreter's lock.
void set_exception_forgetter(void (*forget)());

}  // namespace actzip::torch
