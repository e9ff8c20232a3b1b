// What becomes of a saved tensor, decided from what its gradient needs of it. The rows are data:
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

/// What one row of the table does with a tensor.
enum class Treatment : std::uint8_t {
  as_is,             ///< kept as it is
  not_known,         ///< the same, but for a preset that has one codec for everything
  exactly,           ///< the same, and no rule changes it: a kernel relies on its very memory
  shape_only,        ///< backward asks for its shape alone: nothing is kept
  codec,             ///< the row's codec
  pointwise,         ///< the row's codec; bf16 in a loss, behind the model, and for squares: see kFine
  codec_if_large,    ///< the row's codec from kLargeElems elements on, else kept as it is
  codec_if_whole,    ///< as pointwise where the operator's exponent is 1, 2, 3, ..., else kept as it is
  codec_by_row,      ///< the row's codec; 4 bits where the operator takes fewer than kShortRow elements together
  codec_by_map,      ///< the same; its samples and channels are maps, which `division` codes as such
  codec_by_width,    ///< the row's codec; 2 bits where its rows have kWideRow elements or more
  sign,              ///< one bit: above 0 or not; the tensor has nothing below 0
  interval,          ///< one bit: inside the operator's own limits or not
  scaled_mask,       ///< one bit: zero, or the operator's own factor
  index,             ///< integers in the fewest bits that hold the operator's own bound
  again_or_codec,    ///< computed again in backward where the adapter can, else the row's codec
  again_or_as_is,    ///< computed again in backward where the adapter can, else kept as it is
  for_again,         ///< kept as it is where the adapter computes others from it again, else the row's codec
  again_or_exactly,  ///< with the operator's `result` and as a rule has that, else as `exactly`
  ruled,             ///< the row's codec whatever the preset says, or kept as it is if that is `copy`
};

/// What is done with tensors of one use.
struct PolicyRow {
  Use use;
  Treatment treatment;
  CodecSpec spec;  ///< for the codec treatments
  std::string_view reason;
};

/// From here on a result of exp, sqrt or a division is worth 8 bits instead of its own type.
inline constexpr std::int64_t kLargeElems = std::int64_t{1} << 18;

/// Where a norm takes its statistics over fewer elements than this, its input gets 4 bits: short rows share a group
/// with neighbours of another size, and a batch norm's gradient averages the rounding over few elements.
inline constexpr std::int64_t kShortRow = 256;

/// A norm over fewer elements than this keeps its input in bf16: there is little to gain, and nothing averages the
/// error.
inline constexpr std::int64_t kTinyRow = 32;

/// Rows that are not a whole number of groups get groups of their own, as long as padding costs no more than this: a
/// small row beside a large one would get the noise of that.
inline constexpr double kMostPadding = 1.5;

/// Rows of linear operands that are this wide fill most of a large network's memory, and get 2 bits.
inline constexpr std::int64_t kWideRow = 4096;

/// A factor that is this many times smaller than the other one is broadcast. It is kept as it is: its error would come
/// again with every element it meets, and there is little to gain. Beside a small parameter the other one gets 2
/// bits: it serves that parameter's gradient alone, a sum of as many products.
inline constexpr std::int64_t kBroadcast = 64;

/// What a user asks for at some sites, before the table is asked.
struct Rule {
  /// For fnmatch(3), against "operator.slot" and against the whole name of the site, "layers.0: linear.input": "gelu.*"
  /// is an operator, "layers.0: *" what the module itself saves, "layers.0[.:]*" that and everything inside it. A
  /// pattern that begins with "use:" goes against the use instead: "use:linear_*".
  std::string sites;
  /// Text of a codec for the values they keep, also where the table keeps them exactly; masks, indices and shapes stay
  /// what they are. Or "none", also written "as is": not compressed. Or "default": what the table says.
  std::string keep;
};

/// A place in the step where a tensor is saved. Stable from step to step.
struct SiteKey {
  std::string_view module;  ///< path of the module, "" if not known
  std::string_view op;      ///< without overload, with the namespace of other libraries: "linear", "mylib::linear"
  std::string_view slot;    ///< name of the argument, "result" for an output, "aux0"... for outputs without gradient
  int ordinal = 0;          ///< how often the same three came before in this step
  Use use = Use::unknown;   ///< of the operator and slot, by the adapter's table
};

/// "layers.0: linear.input", with " #1" and so on for repetitions.
std::string site_name(const SiteKey& key);

/// Where groups restart in a tensor that is kept by `spec`: at its rows if the row of the policy takes statistics over
/// them, they lie one after the other, and padding costs little. Else nowhere.
Segments row_segments(const PolicyRow& row, const CodecSpec& spec, const Shape& shape, std::int64_t row_elems);

/// All rows of the default policy, one for each use, in the order of uses.
std::span<const PolicyRow> policy_table();

/// What the arguments of the saving operator say about a tensor; an adapter fills in what it knows.
struct OperatorFacts {
  Interval interval = {};        ///< inside which the gradient passes
  bool asks_one_bit = true;      ///< whether that is all it asks for: not where kernels disagree about a value
  float exponent = 0.0F;         ///< of a power; 0: not known
  std::int64_t row_elems = 0;    ///< of a row of a linear operand, or over which a norm or filter sums; 0: unknown
  float factor = 1.0F;           ///< what a scaled mask holds where it is not 0
  std::int64_t index_bound = 0;  ///< integers are in [0, index_bound); 0: not known
  std::int64_t meets_elems = 0;  ///< elements of the other factor of a product; 0: not known
  bool meets_parameter = false;  ///< that factor is a parameter
  bool meets_itself = false;     ///< that factor is the same tensor: a square
  bool recomputable = false;     ///< the operator can be run again in backward, on what it has saved of its arguments
  bool after_model = false;      ///< saved by a loss, behind all parameters
};

/// `recomputed`: nothing is kept, and the adapter runs the operator again.
enum class Keep : std::uint8_t { as_is, shape_only, recomputed, encoded };

struct Choice {
  Keep keep = Keep::as_is;
  CodecSpec spec = Copy{};    ///< if encoded
  std::string_view reason;    ///< of the row, or why nothing is done
  bool not_negative = false;  ///< no element is below 0, so that a mask plane says the same as Mask{}
};

/// A codec whose name and parameters, but for the bits, stand in for those of the table: rotated or affine.
using CodecFamily = std::optional<CodecSpec>;

/// Reads one; an empty text is none. Throws Error(invalid_spec) naming what is allowed.
CodecFamily parse_family(std::string_view text);

/// A floor says that these values are not to be had otherwise.
constexpr bool has_floor(const Affine& affine) { return affine.floor != Affine{}.floor; }

/// The codec of `spec`'s bits in that family. What no other can stand in for stays as it is: a mask plane, which needs
/// `rotated`, and what has a floor.
CodecSpec in_family(const CodecSpec& spec, const CodecFamily& family);

/// A preset and rules, made concrete. Never changes: share it between threads.
class Policy {
 public:
  /// `preset` is "default" (the table), "exact" (the rows of the table that change no gradient; the rest as it is),
  /// "division" (the same, but `dual` for inputs of convolutions and batch norms that have more than one position; it
  /// takes the parts of dual's text but the size, as in "division:4:dithered:block=4", and "all", with which the rest
  /// is compressed by the table) or the text of a codec, which then takes the place of all others of the table, masks
  /// included ("affine:2"). `bits` takes the place of 2 in the default rows and in `division`, and those of 3 bits keep
  /// one more, up to 4: 1 to 4 (rotated), or 8 for all (affine, nearest). The first rule that matches a site holds.
  /// `family` is for the default rows. Throws Error(invalid_spec) naming what is allowed.
  explicit Policy(std::string_view preset = "default", std::optional<Bits> bits = std::nullopt,
                  std::span<const Rule> rules = {}, CodecFamily family = std::nullopt);

  /// The row for a site; it does not change, so keep it with the site. Valid as long as the policy.
  [[nodiscard]] const PolicyRow& row(const SiteKey& site) const;

  /// What is done with one tensor of that site. A `dual` that is chosen fits the shape; where it cannot, the tensor is
  /// kept as it is, or under `division` with `all` as by default.
  [[nodiscard]] Choice choose(const PolicyRow& row, DType dtype, const Shape& shape, const OperatorFacts& facts) const;

  [[nodiscard]] const std::string& preset() const noexcept { return preset_; }

  /// Whether the preset is one codec for everything.
  [[nodiscard]] bool is_uniform() const noexcept { return uniform_.has_value(); }

 private:
  struct OwnRow {
    std::string sites;
    std::optional<PolicyRow> row;  ///< none: the table's
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
  bool divides_all_ = false;  ///< `division` keeps nothing as it is that the table would compress
  bool lossless_ = false;
};

}  // namespace actzip
