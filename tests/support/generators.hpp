// Generates test data for codecs, the same on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "actzip/spec.hpp"
#include "actzip/types.hpp"
#include "support/device_memory.hpp"

namespace actzip::testing {

using Values = std::vector<double>;

/// A small random generator whose sequence does not depend on the standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  double uniform();  ///< in [0, 1)
  double normal();
  std::int64_t below(std::int64_t bound);

 private:
  std::uint64_t state_;
};

Values gaussian(std::int64_t elems, std::uint64_t seed);
Values relu(std::int64_t elems, std::uint64_t seed);              ///< Gaussian, with negative values set to zero
Values one_spike(std::int64_t elems, std::uint64_t seed);         ///< zeros except one large value
Values two_spikes(std::int64_t elems, std::uint64_t seed);        ///< zeros except two equal large values
Values shared_component(std::int64_t elems, std::uint64_t seed);  ///< a large common value plus a small Gaussian
Values all_negative(std::int64_t elems, std::uint64_t seed);
Values constant(std::int64_t elems, double value);
Values signed_zeros(std::int64_t elems);  ///< +0, -0, +0, ...
Values denormals(DType dtype, std::int64_t elems, std::uint64_t seed);
Values integers_below(std::int64_t bound, std::int64_t elems, std::uint64_t seed);
Bytes random_bytes(std::size_t count, std::uint64_t seed);

struct NamedData {
  std::string_view name;
  Values (*make)(std::int64_t elems, std::uint64_t seed);
};

/// The five kinds of data for which unbiased codecs must be unbiased.
std::span<const NamedData> training_data();

/// Returns elements that `spec` accepts as `dtype`: Gaussian ones with some zeros, booleans, bytes, or integers below
/// its bound.
Bytes sample(const CodecSpec& spec, DType dtype, std::int64_t elems, std::uint64_t seed);

}  // namespace actzip::testing
