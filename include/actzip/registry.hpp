// Which codecs exist and what each one guarantees. Plans, tests, benchmarks and help texts read this registry instead
// of keeping lists of their own.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "actzip/spec.hpp"
#include "actzip/types.hpp"

namespace actzip {

/// What a codec guarantees with given parameters.
struct Traits {
  bool exact = false;  ///< decoding returns the encoded values (for `mask`: the bit)
  /// the same bytes on every device; otherwise equal up to rounding at a cut, a border between two codes
  bool byte_equal = false;
  bool unbiased = false;     ///< the mean over seeds is the encoded value
  bool keeps_zeros = false;  ///< 0 decodes to 0
  bool keeps_signs = false;  ///< no value changes its sign
};

struct CodecInfo {
  std::string_view name;
  std::string_view summary;
  std::string_view grammar = {};             ///< syntax of its spec, for help texts
  std::span<const CodecSpec> variants = {};  ///< one spec for each width, rounding and plane; sweeps run over them
  std::span<const DType> encodes = {};       ///< element types that it encodes
  std::span<const DType> decodes = {};       ///< element types that it decodes to
};

/// All codecs, in the order of the alternatives of CodecSpec. Built once, read-only.
std::span<const CodecInfo> codecs();

/// The entry of the codec that `spec` names.
const CodecInfo& codec_info(const CodecSpec& spec);

Traits traits(const CodecSpec& spec);

/// Expected relative squared error |x^ - x|^2 / |x|^2 on independent Gaussian data in groups of 256, from the codec's
/// table of errors by bits. 0 for exact codecs.
double expected_error(const CodecSpec& spec);

/// Returns the codec that a bare number of bits stands for: `rotated` as far as it goes, or dithered `affine`
/// for the most bits that it has. Returns nothing for any other number.
std::optional<CodecSpec> spec_of_bits(double bits);

/// The numbers that spec_of_bits() knows, for messages: "1, 2, 3, 4, 8".
std::string usual_bits();

/// Bits of one code; for `index`, those that its bound requires; for `copy`, those of `dtype`.
int code_bits(const CodecSpec& spec, DType dtype);

}  // namespace actzip
