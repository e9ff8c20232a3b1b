// The same elements coded under many seeds: mean and variance of each decoded value.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "actzip/spec.hpp"
#include "actzip/types.hpp"
#include "support/harness.hpp"

namespace actzip::testing {

/// Codes `src` under seeds 1, 2, ..., `seeds` and gives each decoded tensor to `use`.
void decode_many(Device device, const CodecSpec& spec, const Tensor& src, DType out, std::int64_t seeds,
                 const std::function<void(const std::vector<double>&)>& use, Segments segments = {},
                 const Bytes& segment_bits = {});

struct Moments {
  std::vector<double> mean;
  std::vector<double> variance;  ///< of one draw
};

/// Sums from which the moments of each element follow.
class MomentSums {
 public:
  void add(const std::vector<double>& draw);
  [[nodiscard]] Moments result() const;

 private:
  double count_ = 0.0;
  std::vector<double> origin_;  ///< the first draw: squares of large equal numbers would drown a small variance
  std::vector<double> sum_;
  std::vector<double> squares_;
};

/// Both together.
Moments moments_over_seeds(Device device, const CodecSpec& spec, const Tensor& src, DType out, std::int64_t seeds);

}  // namespace actzip::testing
