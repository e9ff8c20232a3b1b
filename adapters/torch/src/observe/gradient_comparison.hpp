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

/// Waits for the whole gradient that arrives at a node in one backward. Thread-safe: with a retained graph, several
/// backwards may run the node at once.
class Arrival {
 public:
  explicit Arrival(std::uint32_t input) : input_(input) {}

  /// What another node sent there. Holding the tensor keeps autograd from adding to it in place: if the same tensor
  /// arrives, no other node contributed, and the node's own gradient is the whole.
  struct Waiting {
    std::shared_ptr<Expected> expected;
    at::Tensor sent;
    at::Tensor correction;  ///< the exact gradient minus what was sent
  };
  void expect(Waiting waiting);
  /// Never throws.
  void hear(const std::vector<at::Tensor>& received);

 private:
  const std::uint32_t input_;
  std::mutex mutex_;  ///< guards everything below
  int backward_ = 0;
  Waiting waiting_;
};
/// By edge of a node; null where nothing can be heard.
using Arrivals = std::vector<std::shared_ptr<Arrival>>;

/// Before the forward of a step on this thread.
void begin_nodes();

/// Forward: listens at those nodes below `node` that this thread has made since begin_nodes(). Others may be running
/// now, in the backward of another thread, and must not get hooks meanwhile.
Arrivals listen_below(::torch::autograd::Node& node);

/// How far a tensor is off.
struct Comparison {
  enum What : std::uint8_t {
    restored,  ///< the restored tensor; it must be closer than zeros would be
    gradient,  ///< a gradient of the node
    sum,       ///< a gradient of a node that is not linear, summed over many elements. It may cancel to almost 0 by
               ///< itself, as before a softmax, so it only has to be finite
    rest,      ///< what a product reads, or its gradient, without the few features that hold most of it
  };
  What what;
  at::Tensor difference;  ///< its norm
  std::shared_ptr<Expected> expected;
};
using Comparisons = std::vector<Comparison>;

/// An exact copy of a saved tensor, held in addition to its compressed form until its node has run. Thread-safe: with a
/// retained graph, several backwards may run the node at once.
class Witness {
 public:
  struct About {
    SiteId site;
    bool is_linear = false;  ///< the node's gradients are products with the tensor
    bool is_new = false;     ///< the site was never checked
  };

  /// `node` is the sequence number of the node that saves the tensor; `room` is what the copy takes of the budget.
  Witness(About about, std::uint64_t node, at::Tensor saved, std::shared_ptr<void> room,
          std::shared_ptr<GradientGuard> guard)
      : about(about), node(node), guard(std::move(guard)), saved_(std::move(saved)), room_(std::move(room)) {}

  const About about;
  const std::uint64_t node;
  const std::shared_ptr<GradientGuard> guard;

  /// The exact copy; undefined once its node has run.
  [[nodiscard]] at::Tensor saved() const;

  /// When the tensor was first restored for its node: how well, and the sequence number of the next node.
  struct Restored {
    Comparisons comparisons;
    std::uint64_t next_node = 0;
  };
  [[nodiscard]] std::optional<Restored> restored() const;
  void note_restored(const at::Tensor& tensor);

  /// Whether the caller is the first to ask. Only that one compares.
  bool take();
  /// Frees the copy.
  void let_go();

 private:
  mutable std::mutex mutex_;  ///< guards everything below
  at::Tensor saved_;
  std::shared_ptr<void> room_;
  std::optional<Restored> restored_;
  bool is_taken_ = false;
};
using Witnesses = std::vector<std::shared_ptr<Witness>>;

/// Whether this thread runs a node again that must be given the exact copy.
bool is_called(const Witness& witness);
bool is_any_called();

/// In backward, after `node` received `received` and returned `sent`: runs the node again with all of its witnesses and
/// compares. Empty if the node cannot run again.
Comparisons compare(::torch::autograd::Node& node, std::span<const std::shared_ptr<Witness>> witnesses,
                    const Arrivals& arrivals, const std::vector<at::Tensor>& sent,
                    const std::vector<at::Tensor>& received);

/// Appends the norms that noise_of() needs, so that the caller can fetch those of many nodes at once.
void append_norms(const Comparisons& comparisons, std::vector<at::Tensor>& norms);

/// Returns the squared norm of the error that compression makes in a gradient of the node, relative to that of the
/// gradient: the largest of all its gradients, and of `rest`. Infinite if an error is not finite, or if a tensor is
/// restored no better than by zeros. Nothing if that cannot be decided because the exact gradients are not finite
/// either.
std::optional<double> noise_of(const Comparisons& comparisons, std::span<const float> norms);

}  // namespace actzip::torch
