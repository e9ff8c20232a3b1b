// Encodes or decodes host bytes on a named backend, for the golden test and the conformance tool. Uses only the public
// API.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actzip/actzip.hpp"
#include "support/device_memory.hpp"

namespace actzip::testing {

/// Returns the backends, out of base, avx2, avx512 and cuda, that this build has and this machine can run.
std::vector<std::string> available_backends();

/// Activates the CPU level if `name` is one, and returns the device to use. Throws Error(backend_unavailable).
Device use_backend(std::string_view name);

/// The parameters that encoding and decoding share.
struct Case {
  CodecSpec spec;
  DType dtype = DType::f32;  ///< of the elements to encode, or of the decoded ones
  std::int64_t elems = 0;
  Segments segments;
  Seed seed{0};
  Bytes segment_bits;  ///< the table for encoding if segments have their own bits
};

/// Reads a case from a manifest of the golden files or the conformance tool. `dtype` is the key of its type.
Case read_case(const nlohmann::json& entry, const char* dtype);

struct Encoded {
  Bytes bytes;
  Bytes workspace;  ///< after the call; zeros before it
};

Encoded encode_on(Device device, const Case& test, std::span<const std::byte> elements);
Bytes decode_on(Device device, const Case& test, std::span<const std::byte> encoded);

}  // namespace actzip::testing
