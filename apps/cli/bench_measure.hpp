// Measures one row of the benchmark: verifies a round trip, then times it.
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
  /// Bits that the segments use in rotation, instead of the spec's; empty: all use the spec's.
  std::vector<int> segment_bits{};

  /// With segment_bits, up to 256 equal segments, as a batch has samples: the largest power of two that divides the
  /// elements. Otherwise the default of one segment.
  [[nodiscard]] Segments segments() const;
  /// The spec as text, or its codec with the segments' bits.
  [[nodiscard]] std::string name() const;
  /// The registry's expected error, averaged over the segments.
  [[nodiscard]] double expected_error() const;
};

/// How far decoded values are from the originals.
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
  double copy_ms = 0;  ///< for source_bytes
  double encode_ms = 0;
  double decode_ms = 0;
  int threads = 1;
  std::optional<CpuLevel> level;  ///< empty on CUDA

  /// Bytes read plus bytes written, in units of 10^9 per second.
  [[nodiscard]] double copy_gbps() const;
  [[nodiscard]] double encode_gbps() const;
  [[nodiscard]] double decode_gbps() const;
  [[nodiscard]] double encode_share() const { return encode_gbps() / copy_gbps(); }
  [[nodiscard]] double decode_share() const { return decode_gbps() / copy_gbps(); }
  [[nodiscard]] double bytes_per_element() const;
};

/// Microseconds per call when many calls are queued, on data that stay in the cache.
struct LaunchRow {
  BenchCase bench_case;
  double encode_us = 0;
  double decode_us = 0;
  double empty_us = 0;  ///< for an empty kernel
};

/// Returns the element type that a round trip of `dtype` decodes to: `dtype` if the codec can, else the first type it
/// can decode to.
DType decoded_type(const CodecSpec& spec, DType dtype);

/// Encodes and decodes once. Throws std::runtime_error if the error differs from what the registry promises.
Fidelity verify(BenchDevice& device, const BenchCase& bench_case);

BenchRow measure(BenchDevice& device, const BenchCase& bench_case, int repeats);

LaunchRow measure_launch(BenchDevice& device, const BenchCase& bench_case, int repeats);

}  // namespace actzip::cli
