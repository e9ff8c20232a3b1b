// What few bits of a saved tensor do to the gradients of the node that saved it.
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

/// How large something should be: norms, on its device. One thread's backward may still bring them in while another
/// thread begins a step, and looks.
class Expected {
 public:
  /// Of what the node should give, or of what was saved.
  explicit Expected(at::Tensor own) : own_(std::move(own)) {}
  [[nodiscard]] const at::Tensor& own() const { return own_; }

  /// Of the whole gradient where that goes; the node's own before it is there.
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

/// How far something is off.
struct Comparison {
  enum What : std::uint8_t {
    restored,  ///< what was restored; as far off as nothing at all is too far
    gradient,  ///< of the node
    sum,       ///< a gradient that may cancel to nothing, where any noise is large beside it; it has to be finite
  };
  What what;
  at::Tensor difference;  ///< its norm
  std::shared_ptr<Expected> expected;
};
using Comparisons = std::vector<Comparison>;

/// A saved tensor beside what is kept of it, until its node has run.
struct Witness {
  SiteId site;
  bool is_linear = false;         ///< no node runs again for it: noise in it cannot grow
  std::uint64_t node = 0;         ///< sequence number of the node that saves it
  std::uint64_t restored_at = 0;  ///< sequence number of the next node when it was restored first
  at::Tensor saved;               ///< not defined when its node has run
  std::optional<Comparison> restored;
  std::shared_ptr<void> room;  ///< that `saved` takes in a budget
  std::shared_ptr<GradientGuard> guard;
};
using Witnesses = std::vector<std::shared_ptr<Witness>>;

/// Whether this thread runs a node again that is to restore what was saved.
bool is_called(const Witness& witness);
bool is_any_called();

/// In backward, when `tensor` is restored for its node.
void note_restored(Witness& witness, const at::Tensor& tensor);

/// In backward, after `node` was given `received` and gave `sent`: what its witnesses have to say. Runs the node again
/// with all of them. Empty if it cannot.
Comparisons compare(::torch::autograd::Node& node, std::span<const std::shared_ptr<Witness>> witnesses,
                    const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received);

/// The norms that is_spoilt() asks for, so that somebody fetches those of many nodes from their device at once.
void append_norms(const Comparisons& comparisons, std::vector<at::Tensor>& norms);

/// Whether few bits spoil a gradient of the node: noise makes up much of it, or it is not finite.
/// None if nothing can be said, because the exact ones are not finite either.
std::optional<bool> is_spoilt(const Comparisons& comparisons, std::span<const float> norms);

}  // namespace actzip::torch
