// Which samples of a data set matter: how large the gradient of each was, relative to its batch. One number per sample,
// on the device; the host never waits for it.
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
  /// For a data set of `num_samples` samples. 0: no statistics.
  explicit SampleTable(std::int64_t num_samples) : num_samples_(num_samples) {}

  /// Names the samples of the next step, in the order of the batch, as integers on the CPU. Throws Error(invalid_spec)
  /// for anything else, and for indices outside the data set. If a step was captured into a graph, its replays see the
  /// indices of the last call. If not `learns`, the step uses the statistics but does not change them.
  void set_next(const at::Tensor& indices, bool learns = true);

  void begin_step();

  /// Returns the samples of this step, for a tensor on `device`.
  BatchSamples batch(c10::Device device);

  /// Says that `tensor` holds the samples of this step. Statistics are taken from the gradients of the last few such
  /// tensors.
  void watch(const at::Tensor& tensor);

  void end_step();

  /// Returns a copy of the statistics, by sample of the data set; -1 for samples not seen yet. Undefined before the
  /// first step.
  [[nodiscard]] at::Tensor factors() const;

  /// Nothing if there are no statistics.
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
  mutable std::mutex mutex_;     ///< guards everything below
  at::Tensor next_;              ///< on the CPU; undefined if the next step's samples were not named
  std::int64_t count_ = 0;       ///< of this step; 0 if unknown
  bool next_learns_ = true;      ///< of the next step
  bool learns_ = true;           ///< of this step
  at::Tensor table_;             ///< by sample; -1: not seen yet. On the device of the first tensor that needed it
  at::Tensor indices_;           ///< of this step or the next one, on the device of the table
  at::Tensor factors_;           ///< of this step
  std::deque<Watched> watched_;  ///< the last few of this step
};

}  // namespace actzip::torch
