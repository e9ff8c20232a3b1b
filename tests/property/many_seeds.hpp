// Encodes the same elements with many seeds and computes the mean and variance of each decoded value.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "actzip/spec.hpp"
#include "actzip/types.hpp"
#include "support/harness.hpp"

namespace actzip::testing {

/// Encodes and decodes `src` with seeds 1, 2, ..., `seeds` and passes each decoded tensor to `use`.
void decode_many(Device device, const CodecSpec& spec, const Tensor& src, DType out, std::int64_t seeds,
                 const std::function<void(const std::vector<double>&)>& use, Segments segments = {},
                 const Bytes& segment_bits = {});

struct Moments {
  std::vector<double> mean;
  std::vector<double> variance;  ///< of a single draw
};

/// Accumulates the sums for the moments of each element.
class MomentSums {
 public:
  void add(const std::vector<double>& draw);
  [[nodiscard]] Moments result() const;

 private:
  double count_ = 0.0;
  std::vector<double> origin_;  ///< the first draw, subtracted: squares of large values would swamp a small variance
  std::vector<double> sum_;
  std::vector<double> squares_;
};

/// Returns the moments of each decoded element over the seeds.
Moments moments_over_seeds(Device device, const CodecSpec& spec, const Tensor& src, DType out, std::int64_t seeds);

}  // namespace actzip::testing
