// Finds in one backward pass where bits matter: the noise that a codec adds flows through backward together with the
// gradient.
//
// In an observed step each node runs again after it has run: once for each compressed tensor that it restores, with
// noise on that tensor, and once on the noise that arrives from above in place of the gradient. So noise passes through
// the same operators as the gradient, whatever they are. Norms stay on the device until the result is asked for.
// docs/plan.md says what follows from them.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "actzip/session.hpp"

namespace torch::autograd {
struct Node;
}

namespace actzip::torch {

/// A tensor that an operator saved in an observed step.
struct TriedSave {
  SiteId site;
  double error = 0.0;     ///< relative squared error of its trial noise
  double strength = 1.0;  ///< of the noise that it sends on, relative to the trial noise
};

/// Returns `restored`, with the noise of `trial` added if this thread tries `site` now.
at::Tensor as_tried(at::Tensor restored, SiteId site, const TrialNoise* trial);

/// Whether this thread tries noise now, or runs a node again for the guard.
bool is_trying();

class NoiseStream : public std::enable_shared_from_this<NoiseStream> {
 public:
  using Node = ::torch::autograd::Node;
  using Tensors = std::vector<at::Tensor>;

  /// Forward: says that `node` will restore `saves`. The node, and every node below it, is followed when it runs.
  void watch(Node& node, std::span<const TriedSave> saves);

  /// Backward: `node` received `received` and returned `sent`. Never throws: if it fails, most likely because memory
  /// ran out, the whole observation is given up.
  void pass(Node& node, const Tensors& sent, const Tensors& received) noexcept;

  /// Whether backward has run through a followed node.
  [[nodiscard]] bool has_passed() const;

  /// Whether the observation was given up.
  [[nodiscard]] bool has_failed() const;

  /// Returns the observation. Without `may_wait`, nothing if any norms are on a device; the first call starts copying
  /// them. So it does not depend on the speed of the device in which step the result arrives. Call it between steps.
  std::optional<Observation> result(bool may_wait);

 private:
  using SumId = int;  ///< of a norm
  static constexpr SumId kNoSum = -1;
  static constexpr int kNobody = -1;  ///< instead of a record: the edge leads nowhere
  static constexpr int kLeaf = -2;    ///< a parameter

  struct Record {
    std::vector<TriedSave> saves;
    Tensors noise;  ///< that has arrived, by the node's input
    bool is_done = false;
    std::vector<SumId> arrived;             ///< norms of that, by input
    std::vector<int> children;              ///< by edge: another record, kNobody or kLeaf
    std::vector<SumId> sent;                ///< norms of the noise that passed through, by edge
    std::vector<std::vector<SumId>> added;  ///< norms of the noise that each save adds, by edge
  };
  /// Norms of a parameter's gradient as it is, and with random signs for each row.
  struct LeafGradient {
    SumId whole;
    SumId by_rows;
    double rows;
  };
  struct Copied {
    std::vector<SumId> ids;
    at::Tensor on_host;
    std::optional<c10::Event> done;
  };

  void follow(Node& node, const Tensors& sent, const Tensors& received);
  void give_up() noexcept;
  int record_of(Node& node);
  int child_of(Node& node, std::size_t edge);
  [[nodiscard]] Record& record_at(int place) { return records_[static_cast<std::size_t>(place)]; }
  SumId sum(const at::Tensor& tensor);
  std::vector<SumId> sums(const Tensors& tensors);
  at::Tensor random_signs(at::IntArrayRef sizes, const at::Tensor& like);
  Tensors passed_on(Node& node, const Tensors& noise, const Tensors& sent, const Tensors& received);
  static std::vector<Tensors> added_by(Node& node, std::span<const TriedSave> saves, const Tensors& sent,
                                       const Tensors& received);
  static void arrive(Record& record, std::size_t input, const at::Tensor& noise);
  static bool can_be_known(const Record& record, std::size_t save);
  void look_at_rows(Node& node, const Tensors& sent, const Tensors& received);
  void start_copies();
  [[nodiscard]] Observation evaluate() const;
  [[nodiscard]] std::vector<double> squares() const;

  mutable std::mutex mutex_;  ///< guards everything below
  bool has_failed_ = false;
  std::unordered_map<const Node*, int> places_;
  std::vector<Record> records_;
  std::vector<int> order_;  ///< of records, in the order in which their nodes ran
  std::vector<at::Tensor> sums_;
  std::vector<LeafGradient> leaves_;
  std::map<std::string, at::Generator> generators_;  ///< by device; torch's own generators are never used
  std::vector<Copied> copied_;
};

}  // namespace actzip::torch
