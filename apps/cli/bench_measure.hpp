// One row of the benchmark: verify, then time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actzip/actzip.hpp"
#include "bench_device.hpp"

namespace actzip::cli {

struct BenchCase {
  CodecSpec spec;
  DType dtype = DType::f32;
  std::int64_t elems = 0;
  std::vector<int> segment_bits{};  ///< that segments have in turn, in the place of those of the spec; or none

  /// As many segments as a batch has samples, if the elements divide so; one where they have no bits of their own.
  [[nodiscard]] Segments segments() const;
  /// The spec, or its codec with the bits that its segments have.
  [[nodiscard]] std::string name() const;
  /// What the registry expects, as the mean over the segments.
  [[nodiscard]] double expected_error() const;
};

/// How far decoded values are from the ones encoded.
struct Fidelity {
  double rel_sq_error = 0;  ///< |y - x|^2 / |x|^2
  double bias = 0;          ///< <x, y - x> / <x, x>
};

struct BenchRow {
  BenchCase bench_case;
  std::size_t source_bytes = 0;
  std::size_t encoded_bytes = 0;
  std::size_t decoded_bytes = 0;
  Fidelity fidelity;
  double copy_ms = 0;  ///< of source_bytes
  double encode_ms = 0;
  double decode_ms = 0;
  int threads = 1;
  std::optional<CpuLevel> level;  ///< empty on CUDA

  /// Bytes read and written, in 10^9 a second.
  [[nodiscard]] double copy_gbps() const;
  [[nodiscard]] double encode_gbps() const;
  [[nodiscard]] double decode_gbps() const;
  [[nodiscard]] double encode_share() const { return encode_gbps() / copy_gbps(); }
  [[nodiscard]] double decode_share() const { return decode_gbps() / copy_gbps(); }
  [[nodiscard]] double bytes_per_element() const;
};

/// Microseconds of one call in a queue of many, on data that stay in the cache.
struct LaunchRow {
  BenchCase bench_case;
  double encode_us = 0;
  double decode_us = 0;
  double empty_us = 0;  ///< of an empty kernel
};

/// The element type that a round trip of `dtype` ends in: `dtype` itself where the codec gives it.
DType decoded_type(const CodecSpec& spec, DType dtype);

/// Encodes and decodes once. Throws std::runtime_error if the error is not what the registry promises.
Fidelity verify(BenchDevice& device, const BenchCase& bench_case);

BenchRow measure(BenchDevice& device, const BenchCase& bench_case, int repeats);

LaunchRow measure_launch(BenchDevice& device, const BenchCase& bench_case, int repeats);

}  // namespace actzip::cli
