// actzip for PyTorch: what autograd saves inside a scope is kept compressed. Any model, nothing changed.
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

/// While it lives, what autograd saves on this thread goes to the session. Scopes nest, the innermost serves; they end
/// on the thread they began on, in reverse order. A session's outermost one begins a step.
class Scope {
 public:
  explicit Scope(std::shared_ptr<SessionImpl> session);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();
};

/// Thread-safe. It may be destroyed before backward, but not inside one of its scopes.
class Session {
 public:
  /// Throws actzip::Error for options outside their range.
  explicit Session(const SessionOptions& options = {});

  /// Compresses on this thread until the scope ends.
  [[nodiscard]] Scope scope();

  /// Parameters and buffers: their memory is never compressed, nor are views and casts of it. Parameters that were not
  /// named are mostly recognised as well; naming them makes it certain (frozen ones above all).
  void register_parameters(at::TensorList tensors);

  /// The samples of the coming step, in the order of its batch: integers on the CPU. With use_gradient it is known from
  /// them which samples matter; without, how many there are. Throws actzip::Error for an index outside the data set.
  void samples(const at::Tensor& indices);

  /// What the last step kept, and why.
  [[nodiscard]] Report report() const;

  /// Encoded bytes that wait for backward now.
  [[nodiscard]] std::size_t live_bytes() const;

  /// As actzip::Session has them; statistics of samples are not part of it. Outside of scopes, after backward.
  [[nodiscard]] std::string save_state();
  void load_state(std::string_view text);

  /// What the Python package is built on.
  [[nodiscard]] const std::shared_ptr<SessionImpl>& impl() const noexcept { return impl_; }

 private:
  std::shared_ptr<SessionImpl> impl_;
};

}  // namespace actzip::torch
