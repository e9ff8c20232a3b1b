// How compressing a saved tensor changes the gradients of the node that saved it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "actzip/session.hpp"

namespace torch::autograd {
struct Node;
}

namespace actzip::torch {

class GradientGuard;

/// How large a gradient or a restored tensor should be: norms, which stay on their device. Thread-safe: one thread's
/// backward may set the arrived norm while another thread begins a step and reads it.
class Expected {
 public:
  /// `own` is the norm of the node's exact gradient, or of what was saved.
  explicit Expected(at::Tensor own) : own_(std::move(own)) {}
  [[nodiscard]] const at::Tensor& own() const { return own_; }

  /// The norm of the whole gradient that arrives at the next node; own() until it is known.
  void set_arrived(at::Tensor norm) {
    const std::lock_guard lock(mutex_);
    arrived_ = std::move(norm);
  }
  [[nodiscard]] at::Tensor arrived() const {
    const std::lock_guard lock(mutex_);
    return arrived_.defined() ? arrived_ : own_;
  }

 private:
  const at::Tensor own_;
  mutable std::mutex mutex_;
  at::Tensor arrived_;
};

/// How far a tensor is off.
struct Comparison {
  enum What : std::uint8_t {
    restored,  ///< the restored tensor; it must be closer than zeros would be
    gradient,  ///< a gradient of the node
    sum,       ///< a gradient that may cancel to almost 0, so that any noise is large in relation; it must be finite
  };
  What what;
  at::Tensor difference;  ///< its norm
  std::shared_ptr<Expected> expected;
};
using Comparisons = std::vector<Comparison>;

/// An exact copy of a saved tensor, held in addition to its compressed form until its node has run.
struct Witness {
  SiteId site;
  bool is_linear = false;         ///< its node need not run again: linear operators do not amplify noise
  std::uint64_t node = 0;         ///< sequence number of the node that saves it
  std::uint64_t restored_at = 0;  ///< sequence number of the next node when it was first restored
  at::Tensor saved;               ///< undefined once its node has run
  std::optional<Comparison> restored;
  std::shared_ptr<void> room;  ///< what `saved` takes of the budget
  std::shared_ptr<GradientGuard> guard;
};
using Witnesses = std::vector<std::shared_ptr<Witness>>;

/// Whether this thread runs a node again that must be given the exact copy.
bool is_called(const Witness& witness);
bool is_any_called();

/// In backward, when `tensor` is restored for its node.
void note_restored(Witness& witness, const at::Tensor& tensor);

/// In backward, after `node` received `received` and returned `sent`: runs the node again with all of its witnesses and
/// compares. Empty if the node cannot run again.
Comparisons compare(::torch::autograd::Node& node, std::span<const std::shared_ptr<Witness>> witnesses,
                    const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received);

/// Appends the norms that is_spoilt() needs, so that the caller can fetch those of many nodes at once.
void append_norms(const Comparisons& comparisons, std::vector<at::Tensor>& norms);

/// Whether compression spoils a gradient of the node: much of it is noise, or it is not finite. Nothing if that cannot
/// be decided because the exact gradients are not finite either.
std::optional<bool> is_spoilt(const Comparisons& comparisons, std::span<const float> norms);

}  // namespace actzip::torch
