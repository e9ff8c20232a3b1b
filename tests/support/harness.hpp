// Encodes and decodes host data on any backend, with canaries around every buffer. A damaged canary fails the test.
#pragma once

#include <cstddef>
#include <cstdint>

#include "actzip/codec.hpp"
#include "support/backends.hpp"
#include "support/device_memory.hpp"
#include "support/tensor.hpp"

namespace actzip::testing {

/// The parameters of a call besides its data.
struct Call {
  std::uint64_t seed = 7;
  Segments segments{};
  bool seed_by_address = false;
  std::uint8_t fill = 0xA5;    ///< the previous content of the memory, including canaries
  std::size_t misaligned = 0;  ///< bytes from a multiple of 16 to the tensor's start
  Bytes segment_bits{};        ///< the table for encode() if segments have their own bits
};

class Harness {
 public:
  explicit Harness(Device device, Executor& executor = inline_executor())
      : device_(device), stream_(device, executor) {}

  Bytes encode(const CodecSpec& spec, const Tensor& src, const Call& call = {});
  /// Returns the destination's memory, including gaps.
  Bytes decode(const CodecSpec& spec, const Bytes& encoded, DType dtype, const Shape& shape, const Call& call = {});

  /// Encodes a tensor, decodes it to dense elements and returns their values.
  std::vector<double> round_trip(const CodecSpec& spec, const Tensor& src, DType out, const Call& call = {});

  /// The overflow word left by the last encode().
  [[nodiscard]] std::uint32_t overflow() const { return overflow_; }
  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] const OwnedStream& stream() const { return stream_; }

 private:
  Device device_;
  OwnedStream stream_;
  std::uint32_t overflow_ = 0;
};

}  // namespace actzip::testing
