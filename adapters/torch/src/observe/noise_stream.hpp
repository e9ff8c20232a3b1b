// Where bits matter, seen in one backward pass: beside the gradient flows the noise that a codec puts on it.
//
// In an observed step each node runs again after it has run: once for each compressed tensor that it restores, with
// noise on that tensor, and once with the noise that arrives from above in place of the gradient. So noise passes
// through the very operators that the gradient passes through, whatever they are. Sums of squares stay on the device
// until somebody asks for the result. docs/plan.md says what follows from them.
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
  double error = 0.0;     ///< of its trial noise
  double strength = 1.0;  ///< of the noise that it sends on, beside that of the trial
};

/// `restored`, or with the noise of `trial` on it, if it is what this thread tries now.
at::Tensor as_tried(at::Tensor restored, SiteId site, const TrialNoise* trial);

/// Whether this thread tries anything now.
bool is_trying();

class NoiseStream : public std::enable_shared_from_this<NoiseStream> {
 public:
  using Node = ::torch::autograd::Node;
  using Tensors = std::vector<at::Tensor>;

  /// Forward: `saves` are what `node` will restore. It and everything below it is followed when it runs.
  void watch(Node& node, std::span<const TriedSave> saves);

  /// Backward: `node` was given `received` and gave `sent`. Throws nothing: if it fails, for want of memory above all,
  /// everything that was seen is given up.
  void pass(Node& node, const Tensors& sent, const Tensors& received) noexcept;

  /// Whether backward came by.
  [[nodiscard]] bool has_passed() const;

  /// Whether nothing can be learned, because memory ran out.
  [[nodiscard]] bool has_failed() const;

  /// What was seen, from the CPU at once; from a device only if `may_wait`, so that it does not depend on its pace when
  /// somebody learns of it. The first call begins to fetch it. Ask between steps.
  std::optional<Observation> result(bool may_wait);

 private:
  using SumId = int;  ///< of a norm that lies on a device
  static constexpr SumId kNoSum = -1;
  static constexpr int kNobody = -1;  ///< in place of a record: nobody asks for it
  static constexpr int kLeaf = -2;    ///< a parameter

  struct Record {
    std::vector<TriedSave> saves;
    Tensors noise;  ///< that has arrived, by input of the node
    bool is_done = false;
    std::vector<SumId> arrived;             ///< by input
    std::vector<int> children;              ///< by edge: another record, kNobody or kLeaf
    std::vector<SumId> sent;                ///< by edge, of the noise that passed through
    std::vector<std::vector<SumId>> added;  ///< by save and edge, of the noise that it adds
  };
  /// The gradient of a parameter as it is, and with its rows' signs drawn at random.
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

  mutable std::mutex mutex_;  ///< of everything below
  bool has_failed_ = false;
  std::unordered_map<const Node*, int> places_;
  std::vector<Record> records_;
  std::vector<int> order_;  ///< of records, as they were passed
  std::vector<at::Tensor> sums_;
  std::vector<LeafGradient> leaves_;
  std::map<std::string, at::Generator> generators_;  ///< by device; torch's own are never touched
  std::vector<Copied> copied_;
};

}  // namespace actzip::torch
