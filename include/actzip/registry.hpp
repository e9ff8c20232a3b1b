// What exists and what may be relied upon. Plans, tests, benchmarks and help texts read it instead of lists of their
// own.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "actzip/spec.hpp"
#include "actzip/types.hpp"

namespace actzip {

/// What one codec, with these parameters, promises.
struct Traits {
  bool exact = false;        ///< decoding gives the values encoded (for `mask`: the bit)
  bool byte_equal = false;   ///< the same bytes on every device; otherwise equal up to rounding at a cut
  bool unbiased = false;     ///< the mean over seeds is the value encoded
  bool keeps_zeros = false;  ///< 0 decodes to 0
  bool keeps_signs = false;  ///< no value changes its sign
};

struct CodecInfo {
  std::string_view name;
  std::string_view summary;
  std::string_view grammar;             ///< how its spec is written, for help texts
  std::span<const CodecSpec> variants;  ///< one spec for each width, rounding and plane: what sweeps run over
  std::span<const DType> encodes;       ///< element types it takes
  std::span<const DType> decodes;       ///< element types it gives
};

/// All codecs, in the order of the alternatives of CodecSpec. Built once, read-only.
std::span<const CodecInfo> codecs();

/// The entry of the codec that `spec` names.
const CodecInfo& codec_info(const CodecSpec& spec);

Traits traits(const CodecSpec& spec);

/// Expected relative squared error |x^ - x|^2 / |x|^2 on independent Gaussian data, for groups of 256: the codec's
/// error table by bits. 0 for exact codecs.
double expected_error(const CodecSpec& spec);

/// What a number of bits stands for where nobody names a codec: `rotated` as far as it goes, `affine` rounded to
/// nearest with the most bits it has; none between them.
std::optional<CodecSpec> spec_of_bits(double bits);

/// The bits that it knows, for messages: "1, 2, 3".
std::string usual_bits();

/// Bits of one code; for `index` those that its bound asks for; for `copy` those of `dtype`.
int code_bits(const CodecSpec& spec, DType dtype);

}  // namespace actzip
