// Looks once at each site that a session compresses: do its few bits spoil a gradient?
//
// For one step the site keeps what was saved beside what the session keeps of it: a witness. After the node that saved
// it has run in backward, it runs again with the witness. The difference is compared with the whole gradient that
// arrives where it goes: what comes past the node, over a residual connection say, counts, too. Where much of that
// gradient is noise, the site is kept exactly from then on. Few sites have a witness in the same step, so that memory
// hardly grows.
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
#include "actzip/use.hpp"
#include "observe/gradient_comparison.hpp"

namespace actzip::torch {

class GradientGuard : public std::enable_shared_from_this<GradientGuard> {
 public:
  explicit GradientGuard(bool is_on) : is_active_(is_on), is_on_(is_on) {}

  /// Whether there may be sites that nobody has looked at. Costs nothing.
  [[nodiscard]] bool is_active() const { return is_active_.load(std::memory_order_relaxed); }

  /// A session has met a site for the first time.
  void note_new_site();

  struct Verdict {
    SiteId site;
    bool is_spoilt = false;
  };
  /// Between two steps: the sites that were looked at since. Waits for devices, unless their streams are captured.
  std::vector<Verdict> begin_step();

  /// Forward: `bytes` of a tensor are saved, by whatever site. Counts what a plain step holds.
  void note_saved(std::size_t bytes);

  /// Forward: a lossy site that nobody has looked at, and that must wait for another step.
  void postpone(SiteId site);

  /// Forward: a witness for a lossy site that nobody has looked at; null if it must wait for another step.
  /// `room(bytes)` says what holds the room for it, or null if there is none.
  std::shared_ptr<Witness> witness(SiteId site, Use use, const at::Tensor& tensor,
                                   const std::function<std::shared_ptr<void>(std::size_t)>& room);

  /// Forward: `node` will restore these.
  void watch(::torch::autograd::Node& node, Witnesses witnesses);

  /// Backward: `node` was given `received` and gave `sent`. Throws nothing: if it fails, the sites wait for another
  /// step.
  void hear(::torch::autograd::Node& node, Witnesses witnesses, const std::vector<at::Tensor>& sent,
            const std::vector<at::Tensor>& received) noexcept;

 private:
  struct Seen {
    std::vector<SiteId> sites;  ///< of one node, which stand or fall together
    Comparisons comparisons;
  };
  std::vector<Seen> take_seen();
  [[nodiscard]] bool fits_into_step(std::size_t bytes) const;

  std::atomic<bool> is_active_;
  const bool is_on_;
  std::mutex mutex_;                           ///< of everything below
  std::unordered_set<std::uint32_t> waiting_;  ///< sites that are lossy, and were not looked at
  int idle_steps_ = 0;                         ///< since a site was new or heard
  std::size_t held_ = 0;                       ///< by a plain step so far
  std::size_t held_before_ = 0;                ///< by the step before
  std::size_t witnessed_ = 0;                  ///< bytes, in this step
  std::vector<Seen> seen_;
};

}  // namespace actzip::torch
