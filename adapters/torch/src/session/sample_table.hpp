// Which samples of a data set matter: how large the gradient of each was, beside those of its batch. One number a
// sample, on the device; nothing waits for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>

#include "actzip/report.hpp"
#include "actzip/session.hpp"

namespace actzip::torch {

/// Thread-safe.
class SampleTable : public std::enable_shared_from_this<SampleTable> {
 public:
  /// For a data set of so many samples; 0: gradients are not looked at.
  explicit SampleTable(std::int64_t num_samples) : num_samples_(num_samples) {}

  /// The samples of the coming step: integers on the CPU, in the order of the batch. Throws Error(invalid_spec) for
  /// what is outside the data set. If a step was captured into a graph, its replays see the indices of the last call.
  /// Unless it `learns`, what is known of them serves the step, and stays as it is.
  void set_next(const at::Tensor& indices, bool learns = true);

  void begin_step();

  /// The samples of this step for a tensor on `device`.
  BatchSamples batch(c10::Device device);

  /// `tensor` holds samples of this step. Of all that are named the gradients of the last few are looked at.
  void watch(const at::Tensor& tensor);

  void end_step();

  /// By sample of the data set, -1 for those not seen yet: a copy. Undefined before the first step.
  [[nodiscard]] at::Tensor factors() const;

  /// None if gradients are not looked at.
  [[nodiscard]] std::optional<SampleStatistics> report() const;

 private:
  using Node = std::decay_t<decltype(at::Tensor().grad_fn())>;
  struct Watched {
    Node node;
    std::uint32_t output = 0;
  };
  class Hook;

  void upload();
  void update(const at::Tensor& indices, const at::Tensor& gradient, double share);

  const std::int64_t num_samples_;
  mutable std::mutex mutex_;     ///< of everything below
  at::Tensor next_;              ///< on the CPU; undefined if nobody has named the samples of the coming step
  std::int64_t count_ = 0;       ///< of this step; 0 if not known
  bool next_learns_ = true;      ///< the coming step
  bool learns_ = true;           ///< this step
  at::Tensor table_;             ///< by sample; -1: not seen yet. On the device of the first tensor that asked
  at::Tensor indices_;           ///< of this step, or of the coming one, beside the table
  at::Tensor factors_;           ///< of this step
  std::deque<Watched> watched_;  ///< in this step, the last ones
};

}  // namespace actzip::torch
