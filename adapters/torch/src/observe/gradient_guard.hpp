// Checks the sites that a session compresses, when they are new and again in later rounds: how much of a gradient is
// noise because of it?
//
// For one step the session also keeps an exact copy of what the site saved: a witness. After the node that saved it has
// run in backward, the guard runs the node again with the witness and compares the two gradients. The difference is
// measured against the whole gradient that arrives at the next node, so gradients that bypass this node, over a
// residual connection for example, count too. The session then decides what to do about it. Only a few sites have a
// witness in the same step, so memory hardly grows.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "actzip/session.hpp"
#include "observe/gradient_comparison.hpp"

namespace actzip::torch {

class GradientGuard : public std::enable_shared_from_this<GradientGuard> {
 public:
  explicit GradientGuard(bool is_on) : is_active_(is_on), is_on_(is_on) {}

  /// Whether this round may still have to check some sites. Costs one relaxed load.
  [[nodiscard]] bool is_active() const { return is_active_.load(std::memory_order_relaxed); }

  /// Called when the session has met a site for the first time.
  void note_new_site();
  /// Called when all sites are to be checked again.
  void begin_round();

  struct Verdict {
    SiteId site;
    double noise = 0.0;  ///< see Session::note_look()
  };
  /// Between two steps: returns the sites checked since the last call. Waits for devices, unless their streams are
  /// being captured.
  std::vector<Verdict> begin_step();

  /// Forward: any site saved a tensor of `bytes`. Counts what a plain step holds.
  void note_saved(std::size_t bytes);

  /// Forward: a lossy site that is to be checked must wait for another step.
  void postpone(SiteId site);

  /// Forward: a witness for a lossy site that this round has not checked; null if the site must wait for another step.
  /// `room(bytes)` returns what reserves memory for it in the budget, or null if there is none left.
  std::shared_ptr<Witness> witness(const Witness::About& about, const at::Tensor& tensor,
                                   const std::function<std::shared_ptr<void>(std::size_t)>& room);

  /// Forward: `node` will restore what these witness.
  void watch(::torch::autograd::Node& node, Witnesses witnesses);

  /// Backward: `node` received `received` and returned `sent`. Never throws: on failure the sites wait for another
  /// step.
  void hear(::torch::autograd::Node& node, Witnesses witnesses, const Arrivals& arrivals,
            const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received) noexcept;

 private:
  /// The guard retires after this many steps without a new site or a verdict, and in a later round earlier: then most
  /// sites that cannot be checked are known.
  static constexpr int kMostIdleSteps = 100;
  static constexpr int kMostIdleStepsOfRound = 20;
  /// Not every step has all sites: networks take turns, and some steps only evaluate.
  static constexpr int kStepsOfRound = 10;

  struct Seen {
    std::vector<SiteId> sites;  ///< of one node; they get the same verdict
    Comparisons comparisons;
  };
  std::vector<Seen> take_seen();
  [[nodiscard]] bool fits_into_step(std::size_t bytes) const;

  std::atomic<bool> is_active_;
  const bool is_on_;
  std::mutex mutex_;                           ///< guards everything below
  std::unordered_set<std::uint32_t> waiting_;  ///< lossy sites that this round has not checked
  int round_steps_ = 0;                        ///< steps in which this round may still meet sites
  int most_idle_steps_ = kMostIdleSteps;
  int idle_steps_ = 0;           ///< since the last new or waiting site, or verdict
  std::size_t held_ = 0;         ///< bytes a plain step would hold so far
  std::size_t held_before_ = 0;  ///< the same for the previous step
  std::size_t witnessed_ = 0;    ///< bytes of witnesses in this step
  std::vector<Seen> seen_;
};

}  // namespace actzip::torch
