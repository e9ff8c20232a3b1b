// actzip for PyTorch in C++: what autograd saves inside a scope is kept compressed. Any model, without changes to it.
//
//   actzip::torch::Session session;                    // options by designated initialisers: {.preset = "exact"}
//   { auto scope = session.scope(); loss = net->forward(x); }
//   loss.backward();
//   std::cout << session.report().to_text();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "actzip/report.hpp"
#include "actzip/session.hpp"

namespace actzip::torch {

class SessionImpl;

/// While a Scope lives, what autograd saves on this thread goes to its session. Scopes nest, and the innermost one
/// applies. A scope ends on the thread on which it began, in reverse order. The outermost scope of a session begins a
/// step.
class Scope {
 public:
  explicit Scope(std::shared_ptr<SessionImpl> session);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();
};

/// A session for LibTorch programs. Thread-safe. It may be destroyed before backward, but not inside one of its scopes.
class Session {
 public:
  /// Throws actzip::Error for options outside their range, and as actzip::Session does. The first session of a process
  /// installs actzip's hooks in torch; it throws Error(backend_unavailable) if another library uses torch's PrivateUse3
  /// backend.
  explicit Session(const SessionOptions& options = {});

  /// Compresses what autograd saves on this thread, until the scope is destroyed. Begins a step and throws as
  /// actzip::Session::begin_step() does.
  [[nodiscard]] Scope scope();

  /// Names parameters and buffers. Their memory is never compressed, nor are views and casts of it. Most parameters are
  /// recognised without this call; naming them makes it certain, for frozen parameters above all.
  void register_parameters(at::TensorList tensors);

  /// Names the samples of the next step, in the order of its batch, as integers on the CPU. With `use_gradient` the
  /// session knows from their indices which samples matter; otherwise it only learns how many there are. Throws
  /// actzip::Error if `indices` is no such tensor or an index lies outside the data set.
  void samples(const at::Tensor& indices);

  /// Returns what the last step kept, and why.
  [[nodiscard]] Report report() const;

  /// Encoded bytes that currently wait for backward.
  [[nodiscard]] std::size_t live_bytes() const;

  /// As in actzip::Session; statistics of samples are not included. Call them outside of scopes, after backward.
  [[nodiscard]] std::string save_state();
  void load_state(std::string_view text);

  /// The implementation, for the Python package.
  [[nodiscard]] const std::shared_ptr<SessionImpl>& impl() const noexcept { return impl_; }

 private:
  std::shared_ptr<SessionImpl> impl_;
};

}  // namespace actzip::torch
