// Decides how a saved tensor is kept, from what its gradient needs of it. The rows of the policy are data:
// src/session/policy_table.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actzip/interval.hpp"
#include "actzip/spec.hpp"
#include "actzip/types.hpp"
#include "actzip/use.hpp"
#include "actzip/view.hpp"

namespace actzip {

/// How a row of the table treats a tensor.
enum class Treatment : std::uint8_t {
  as_is,           ///< keep it as is
  not_known,       ///< keep it as is, since nobody knows what errors do; unless the preset is one codec for everything
  exactly,         ///< keep it as is, whatever a rule says: a kernel relies on its very memory
  shape_only,      ///< keep nothing: backward needs only the shape
  codec,           ///< use the row's codec
  pointwise,       ///< use the row's codec, but bf16 in a loss, behind the model, and for squares: see kFine
  codec_if_large,  ///< use the row's codec from kLargeElems elements on, else keep it as is
  /// As pointwise if the operator's exponent is 1, 2, 3, ..., with more bits from 3 on; else keep it as is.
  codec_if_whole,
  codec_by_row,    ///< use the row's codec, but 4 bits if the operator sums over fewer than kShortRow elements
  codec_by_map,    ///< the same; samples and channels are maps, which the preset `division` codes as such
  codec_by_width,  ///< use the row's codec, but 2 bits if rows have kWideRow elements or more
  sign,            ///< keep one bit, above 0 or not; the tensor has nothing below 0
  interval,        ///< keep one bit: inside the operator's own limits or not
  scaled_mask,     ///< keep one bit: zero, or the operator's own factor
  index,           ///< keep integers in the fewest bits that hold the operator's own bound
  again_or_codec,  ///< compute it again in backward if the adapter can, else use the row's codec
  again_or_as_is,  ///< compute it again in backward if the adapter can, else keep it as is
  for_again,       ///< keep it as is if the adapter computes others again from it, else use the row's codec
  /// Compute it again together with the operator's `result`; if that cannot be, or a rule keeps the result, as
  /// `exactly`.
  again_or_exactly,
  ruled,  ///< use the row's codec whatever the preset says, or keep it as is if that is `copy`
};

/// How tensors of one use are kept.
struct PolicyRow {
  Use use;
  Treatment treatment;
  CodecSpec spec;  ///< for the treatments that use a codec
  std::string_view reason;
};

/// From this size on, tensors treated as codec_if_large are compressed.
inline constexpr std::int64_t kLargeElems = std::int64_t{1} << 18;

/// If a norm takes its statistics, or a convolution the gradient of its weight, over fewer elements than this, its
/// input gets 4 bits: short rows share a group with neighbours of another size, and sums over few elements average
/// little of the rounding away.
inline constexpr std::int64_t kShortRow = 256;

/// A norm over fewer elements than this keeps its input in bf16: compression would gain little, and nothing averages
/// the error.
inline constexpr std::int64_t kTinyRow = 32;

/// Rows that are not a whole number of groups get groups of their own, as long as padding costs no more than this
/// factor. Otherwise a small row beside a large one would get the noise of its neighbour.
inline constexpr double kMostPadding = 1.5;

/// Rows of linear operands of this width or more fill most of a large network's memory, and get 2 bits.
inline constexpr std::int64_t kWideRow = 4096;

/// A factor that is this many times smaller than the other one is broadcast. It is kept as is: its error would repeat
/// with every element it meets, and compressing it would gain little. Beside a small parameter, the other factor gets 2
/// bits: it serves only the gradient of that parameter, a sum over as many products.
inline constexpr std::int64_t kBroadcast = 64;

/// What a user requests for some sites. Rules are consulted before the table.
struct Rule {
  /// Pattern for fnmatch(3), matched against "operator.slot" and against the whole name of the site, "layers.0:
  /// linear.input". "gelu.*" is an operator, "layers.0: *" what the module itself saves, "layers.0[.:]*" that and
  /// everything inside it. A pattern that begins with "use:" is matched against the use instead: "use:linear_*".
  std::string sites;
  /// Text of a codec for the values that these sites keep, even where the table keeps them exactly; masks, indices and
  /// shapes are unaffected. Or "none", also written "as is": not compressed. Or "default": what the table says.
  std::string keep;
};

/// A place in the step where a tensor is saved. The same from step to step.
struct SiteKey {
  std::string_view module;  ///< path of the module; "" if unknown
  std::string_view op;      ///< without overload, with the namespace for other libraries: "linear", "mylib::linear"
  std::string_view slot;    ///< name of the argument, "result" for an output, "aux0"... for outputs without gradient
  int ordinal = 0;          ///< how often the same module, op and slot came before in this step
  Use use = Use::unknown;   ///< of the operator and slot, by the adapter's table
};

/// "layers.0: linear.input", with " #1" and so on for repetitions.
std::string site_name(const SiteKey& key);

/// Returns where groups restart in a tensor that is kept by `spec`: at its rows, if the policy's row takes statistics
/// over them, they lie one after the other in memory, and padding costs little. Otherwise nowhere.
Segments row_segments(const PolicyRow& row, const CodecSpec& spec, const Shape& shape, std::int64_t row_elems);

/// All rows of the default policy, one for each use, in the order of uses.
std::span<const PolicyRow> policy_table();

/// What the arguments of the saving operator say about a tensor. An adapter fills in what it knows.
struct OperatorFacts {
  Interval interval = {};    ///< values inside it let the gradient pass
  bool asks_one_bit = true;  ///< whether the gradient needs nothing else; false if kernels disagree about a value
  float exponent = 0.0F;     ///< of a power; 0: unknown
  /// Elements in a row of a linear operand, or that a norm or filter sums over; 0: unknown.
  std::int64_t row_elems = 0;
  float factor = 1.0F;           ///< what a scaled mask holds where it is not 0
  std::int64_t index_bound = 0;  ///< integers are in [0, index_bound); 0: unknown
  std::int64_t meets_elems = 0;  ///< elements of the other factor of a product; 0: unknown
  bool meets_parameter = false;  ///< that factor is a parameter
  bool meets_itself = false;     ///< that factor is the same tensor: a square
  bool recomputable = false;     ///< the operator can run again in backward, on what is kept of its arguments
  bool keeps_sums = false;       ///< attention that cannot: its sums of exponentials are kept
  bool is_probability = false;   ///< a softmax's result, perhaps with some of it dropped
  bool after_model = false;      ///< saved by a loss, behind all parameters
};

/// Returns the row by which a tensor is kept whose site has `row`: another one if its operator's arguments require it.
const PolicyRow& effective_row(const PolicyRow& row, const OperatorFacts& facts);

/// How a tensor is kept. `recomputed`: not at all; the adapter runs the operator again.
enum class Keep : std::uint8_t { as_is, shape_only, recomputed, encoded };

/// What a saver needs of a tensor, or what is kept of it.
struct Want {
  Keep how = Keep::as_is;
  CodecSpec spec = Copy{};    ///< if encoded
  bool not_negative = false;  ///< no element is below 0, so a mask plane says the same as Mask{}
};

struct Choice : Want {
  std::string_view reason;  ///< of the row, or why nothing is done
};

/// A codec, rotated or affine, that replaces those of the table: name and parameters, except for the bits.
using CodecFamily = std::optional<CodecSpec>;

/// Parses a codec family; an empty text is none. Throws Error(invalid_spec), which names what is allowed.
CodecFamily parse_family(std::string_view text);

/// Whether the codec has a floor: values with a floor cannot be coded otherwise.
constexpr bool has_floor(const Affine& affine) { return affine.floor != Affine{}.floor; }

/// Returns the codec of that family with the bits of `spec`. Specs that no other codec can replace are returned
/// unchanged: one with a mask plane, which needs `rotated`, and one with a floor.
CodecSpec in_family(const CodecSpec& spec, const CodecFamily& family);

/// A preset and rules, made concrete. Immutable: share it between threads.
class Policy {
 public:
  /// `preset` is one of
  /// - "default": the table.
  /// - "exact": the rows of the table that change no gradient; everything else is kept as is.
  /// - "division": as "exact", but `dual` for inputs of convolutions and batch norms that have more than one position.
  ///   It takes the parts of dual's text except the size, as in "division:4:dithered:block=4", and "all", with which
  ///   everything else is compressed by the table.
  /// - The text of a codec ("affine:2"), which replaces all codecs of the table, masks included.
  ///
  /// `bits` replaces the 2 of the default rows and of "division"; rows of 3 bits keep one more than that, up to 4.
  /// Allowed are 1 to 4 (rotated), or 8 for all (affine, dithered). The first rule that matches a site applies. `family`
  /// is for the default rows. Throws Error(invalid_spec), which names what is allowed.
  explicit Policy(std::string_view preset = "default", std::optional<Bits> bits = std::nullopt,
                  std::span<const Rule> rules = {}, CodecFamily family = std::nullopt);

  /// Returns the row for a site. It never changes, so store it with the site; valid as long as the policy.
  [[nodiscard]] const PolicyRow& row(const SiteKey& site) const;

  /// Returns how to keep one tensor of that site. A `dual` that is chosen fits the shape. If none fits, the tensor is
  /// kept as is, or under "division" with "all" as by default.
  [[nodiscard]] Choice choose(const PolicyRow& own, DType dtype, const Shape& shape, const OperatorFacts& facts) const;

  [[nodiscard]] const std::string& preset() const noexcept { return preset_; }

  /// Whether the preset is one codec for everything.
  [[nodiscard]] bool is_uniform() const noexcept { return uniform_.has_value(); }

 private:
  struct OwnRow {
    std::string sites;
    std::optional<PolicyRow> row;  ///< not set: the row of the table
  };

  [[nodiscard]] Choice choose_float(const PolicyRow& row, DType dtype, const Shape& shape,
                                    const OperatorFacts& facts) const;
  [[nodiscard]] Choice choose_by_table(const PolicyRow& row, DType dtype, std::int64_t elems,
                                       const OperatorFacts& facts) const;
  [[nodiscard]] const OwnRow* rule_for(const SiteKey& site) const;
  [[nodiscard]] bool runs_again() const;
  [[nodiscard]] bool recomputes(const PolicyRow& row) const;
  [[nodiscard]] CodecSpec widened(const CodecSpec& spec, bool short_rows) const;

  std::string preset_;
  std::optional<Bits> bits_;
  std::vector<OwnRow> rules_;
  CodecFamily family_;
  std::optional<CodecSpec> uniform_;
  std::optional<Dual> division_;
  bool divides_all_ = false;  ///< `division` compresses the rest by the table
  bool lossless_ = false;
};

}  // namespace actzip
