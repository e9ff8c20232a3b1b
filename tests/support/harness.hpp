// encode() and decode() of host data on any backend, every buffer between canaries. A damaged canary is a test failure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "actzip/codec.hpp"
#include "support/backends.hpp"
#include "support/device_memory.hpp"
#include "support/tensor.hpp"

namespace actzip::testing {

/// How a call is made, beside its data.
struct Call {
  std::uint64_t seed = 7;
  Segments segments{};
  bool seed_by_address = false;
  std::uint8_t fill = 0xA5;    ///< what the memory held before, canaries included
  std::size_t misaligned = 0;  ///< bytes by which the tensor's start misses a multiple of 16
  Bytes segment_bits{};        ///< what encoding is given, if segments have bits of their own
};

class Harness {
 public:
  explicit Harness(Device device, Executor& executor = inline_executor())
      : device_(device), stream_(device, executor) {}

  Bytes encode(const CodecSpec& spec, const Tensor& src, const Call& call = {});
  /// The destination's memory, gaps included.
  Bytes decode(const CodecSpec& spec, const Bytes& encoded, DType dtype, const Shape& shape, const Call& call = {});

  /// Dense elements there and back, as values.
  std::vector<double> round_trip(const CodecSpec& spec, const Tensor& src, DType out, const Call& call = {});

  /// The overflow word that the last encode() left.
  [[nodiscard]] std::uint32_t overflow() const { return overflow_; }
  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] const OwnedStream& stream() const { return stream_; }

 private:
  Device device_;
  OwnedStream stream_;
  std::uint32_t overflow_ = 0;
};

}  // namespace actzip::testing
