// One encode or decode from host bytes to host bytes on a named backend: what the golden test and the conformance tool
// share. Only the public API is used.
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

/// Those of base, avx2, avx512 and cuda that this build has and this machine can run.
std::vector<std::string> available_backends();

/// Chooses the CPU level where `name` is one, and says which device to use. Throws Error(backend_unavailable).
Device use_backend(std::string_view name);

/// What both directions need to know.
struct Case {
  CodecSpec spec;
  DType dtype = DType::f32;  ///< of the elements given, or wanted
  std::int64_t elems = 0;
  Segments segments;
  Seed seed{0};
  Bytes segment_bits;  ///< what encoding is given, if segments have bits of their own
};

/// A case as the manifests of the golden files and of the conformance tool have it; `dtype` is the key of the type.
Case read_case(const nlohmann::json& entry, const char* dtype);

struct Encoded {
  Bytes bytes;
  Bytes workspace;  ///< as the call left it; zeros before
};

Encoded encode_on(Device device, const Case& test, std::span<const std::byte> elements);
Bytes decode_on(Device device, const Case& test, std::span<const std::byte> encoded);

}  // namespace actzip::testing
