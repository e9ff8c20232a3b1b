// Arbitrary text for parse_spec(): it must throw actzip::Error or return a valid spec whose text parses to the same
// spec.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "actzip/actzip.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  actzip::CodecSpec spec;
  try {
    spec = actzip::parse_spec(text);
  } catch (const actzip::Error& error) {
    if (error.code() != actzip::ErrorCode::invalid_spec) std::abort();
    return 0;
  }
  actzip::validate(spec);
  if (actzip::parse_spec(actzip::to_string(spec)) != spec) std::abort();
  return 0;
}
