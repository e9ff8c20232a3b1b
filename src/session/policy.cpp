#include "actzip/policy.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <utility>
#include <variant>

#include "actzip/dual.hpp"
#include "actzip/error.hpp"
#include "actzip/registry.hpp"

namespace actzip {

namespace {

constexpr std::string_view kPresets =
    "default, exact, division, a level such as actnn:L3 or gact:L2, or a codec such as affine:2 or rotated:4";
constexpr std::string_view kDivision = "division";
constexpr std::string_view kAll = ":all";
constexpr std::string_view kResult = "result";

/// For values that may be divided by their own size: a loss or a norm written by hand takes the root of a square. The
/// error must be small relative to each value, not to the largest of its group.
constexpr CodecSpec kFine = Cast{.to = DType::bf16};

/// The gradient of a square is linear in its base. Up to the fourth power, its slope is one like others; from the fifth
/// on, 4 bits would not do.
constexpr float kSquare = 2.0F;
constexpr float kMostCurved = 4.0F;

/// A pattern with this prefix matches uses.
constexpr std::string_view kForUses = "use:";

/// For when a rule keeps the result: the operator need not run again for the rest.
constinit const PolicyRow kBesideKeptResult{
    Use::attention_statistics, Treatment::exactly, {}, "its operator's result is kept by a rule"};

/// Returns the site at which the same call saves its result.
SiteKey site_of_result(SiteKey site) {
  site.slot = kResult;
  site.use = Use::attention_result;
  return site;
}

bool is_integer(DType dtype) {
  return dtype == DType::u8 || dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i64;
}

bool takes(const CodecSpec& spec, DType dtype) {
  const auto types = codec_info(spec).encodes;
  return std::ranges::find(types, dtype) != types.end();
}

Choice as_is(std::string_view reason) { return {{Keep::as_is}, reason}; }
Choice encoded(const CodecSpec& spec, std::string_view reason) { return {{Keep::encoded, spec}, reason}; }

/// Whether the operators of a row need no values. A codec for values would lose what a bit or a shape says exactly.
bool keeps_no_values(const PolicyRow& row) {
  return row.treatment == Treatment::sign || row.treatment == Treatment::interval ||
         row.treatment == Treatment::scaled_mask || row.treatment == Treatment::shape_only ||
         row.treatment == Treatment::index;
}

PolicyRow ruled_row(CodecSpec spec) {
  return {.use = Use::unknown, .treatment = Treatment::ruled, .spec = spec, .reason = "a rule of the session"};
}

/// Reads a codec that keeps floating values. `what` names the option in messages.
CodecSpec parse_values(const std::string& what, std::string_view text, std::string_view allowed) {
  CodecSpec spec;
  try {
    spec = parse_spec(text);
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_spec, fmt::format("session: {} (allowed: {}): {}", what, allowed, error.what()));
  }
  if (!takes(spec, DType::f32) || std::holds_alternative<Mask>(spec)) {
    throw Error(ErrorCode::invalid_spec,
                fmt::format("session: {} keeps no floating values (allowed: {})", what, allowed));
  }
  return spec;
}

bool is_division(std::string_view preset) {
  return preset == kDivision || preset.starts_with(std::string(kDivision) + ':');
}

/// Parses what `division` says about maps: everything but their size, which is the tensor's. `rest` has no "all" in it.
Dual parse_division(std::string_view preset, std::string_view rest) {
  const auto refuse = [&](std::string_view why) {
    throw Error(
        ErrorCode::invalid_spec,
        fmt::format("session: preset '{}' (allowed: division[:1..{}][:stochastic|dithered][:block={}..{}][:all]): "
                    "{}",
                    preset, Dual::kMostBits, Dual::kLeastBlock, Dual::kMostBlock, why));
  };
  Dual spec;
  try {
    spec = std::get<Dual>(parse_spec(fmt::format("dual{}", rest)));
  } catch (const Error& error) {
    refuse(error.what());
  }
  if (spec.size != Dual{}.size || spec.last != Dual{}.last) refuse("maps have the size of the tensor");
  return spec;
}

/// Names of all uses, for a message.
std::string use_names() {
  std::string names;
  for (const Use use : all_uses()) names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(use));
  return names;
}

/// Whether `pattern`, without its prefix, matches any use at all.
bool matches_a_use(const std::string& pattern) {
  return std::ranges::any_of(
      all_uses(), [&](Use use) { return ::fnmatch(pattern.c_str(), std::string(to_string(use)).c_str(), 0) == 0; });
}

std::optional<PolicyRow> row_of(const Rule& rule) {
  if (rule.sites.empty()) {
    throw Error(ErrorCode::invalid_spec, "session: a rule for no sites (allowed: a pattern such as gelu.*)");
  }
  if (rule.sites.starts_with(kForUses) && !matches_a_use(rule.sites.substr(kForUses.size()))) {
    throw Error(ErrorCode::invalid_spec,
                fmt::format("session: a rule for '{}', which no use is called (allowed: {})", rule.sites, use_names()));
  }
  if (rule.keep == "default") return std::nullopt;
  if (rule.keep == "none" || rule.keep == "as is") return ruled_row(Copy{});
  return ruled_row(parse_values(fmt::format("rule '{}' for '{}'", rule.keep, rule.sites), rule.keep,
                                "none, as is, default, or a codec such as affine:2 or rotated:4"));
}

Choice choose_integer(const PolicyRow& row, DType dtype, const OperatorFacts& facts) {
  const bool decodes = dtype == DType::i64 || dtype == DType::i32;
  if (row.treatment != Treatment::index || !decodes) return as_is("integers without a known bound");
  const Index index{.bound = facts.index_bound};
  if (facts.index_bound < 1 || facts.index_bound > Index{}.bound) return as_is("integers without a known bound");
  if (index_bits(index.bound) >= static_cast<int>(8 * dtype_bytes(dtype))) return as_is("its bound needs all its bits");
  return encoded(index, row.reason);
}

Choice choose_interval(const PolicyRow& row, DType dtype, const OperatorFacts& facts) {
  if (!facts.asks_one_bit) return as_is("kernels disagree about an infinity or a NaN at its limits");
  const std::optional<Mask> mask = interval_mask(facts.interval, dtype);
  if (!mask) return as_is("its limits are no numbers of its type, or have none between them");
  return encoded(*mask, row.reason);
}

/// Whether the memory follows the order of the dimensions, without gaps.
bool lies_in_rows(const Shape& shape) {
  std::int64_t stride = 1;
  for (int d = shape.rank - 1; d >= 0; --d) {
    const auto at = static_cast<std::size_t>(d);
    if (shape.sizes[at] != 1 && shape.strides[at] != stride) return false;
    stride *= shape.sizes[at];
  }
  return true;
}

std::int64_t in_groups(std::int64_t row_elems, std::int64_t group) { return (row_elems + group - 1) / group * group; }

/// Returns the length of rows that may differ so much in size that they must not share a group; 0 if there are none.
std::int64_t own_rows(const PolicyRow& row, std::int64_t row_elems) {
  // A row whose keys are all masked is NaN, and would turn its neighbours into NaN.
  if (row.use == Use::softmax_result) return row_elems;
  const bool has_rows = row.treatment == Treatment::codec_by_row || row.treatment == Treatment::pointwise ||
                        row.treatment == Treatment::codec_if_whole;
  return has_rows && row_elems >= kTinyRow ? row_elems : 0;
}

bool is_whole(float exponent) { return exponent >= 1.0F && std::trunc(exponent) == exponent; }

bool is_norm(Use use) { return use == Use::batch_norm_input || use == Use::row_norm_input; }

bool is_product(Use use) {
  return use == Use::linear_input || use == Use::linear_weight || use == Use::batched_operand ||
         use == Use::vector_operand;
}

/// Whether a loss may divide by the tensor and by its distance from 1, as it does if it takes logarithms of both. No
/// code has a small error beside both.
bool has_poles_in_a_loss(Use use) { return use == Use::softmax_result || use == Use::bounded_result; }

/// The smallest group of `affine` that holds a row.
GroupSize group_for(std::int64_t row_elems) {
  const auto elems = static_cast<std::uint64_t>(std::max<std::int64_t>(row_elems, Affine::kLeastGroup));
  return GroupSize(static_cast<int>(std::bit_ceil(elems)));
}

/// Returns `spec` with the groups that pad rows of that width least. Groups of `rotated` are too large for short rows;
/// `affine` pads none.
CodecSpec for_rows(CodecSpec spec, std::int64_t row_elems) {
  constexpr int kSmallGroup = Rotated::kLeastGroup;
  auto* rotated = std::get_if<Rotated>(&spec);
  if (rotated == nullptr || row_elems == 0) return spec;
  if (row_elems < kShortRow && row_elems % kSmallGroup != 0) {
    return Affine{.bits = rotated->bits, .rounding = Rounding::dithered, .group = group_for(row_elems)};
  }
  const bool is_tighter = in_groups(row_elems, kSmallGroup) < in_groups(row_elems, rotated->group.value);
  if (is_tighter) rotated->group = GroupSize(kSmallGroup);
  return spec;
}

int group_of(const CodecSpec& spec) {
  if (const auto* rotated = std::get_if<Rotated>(&spec)) return rotated->group.value;
  const auto* affine = std::get_if<Affine>(&spec);
  return affine != nullptr ? affine->group.value : 0;
}

}  // namespace

/// Attention that cannot run again divides by the sums of the true exponentials, and subtracts a result that was made
/// of the true v. Errors then neither cancel nor average out, so few bits would not do. Probabilities are kept as the
/// softmax itself keeps them: where one key takes most of a row, the noise of 4 bits drowns all others.
const PolicyRow& effective_row(const PolicyRow& row, const OperatorFacts& facts) {
  const auto row_of = [](Use use) -> const PolicyRow& { return policy_table()[static_cast<std::size_t>(use)]; };
  const bool is_of_attention = row.use == Use::attention_query || row.use == Use::attention_key ||
                               row.use == Use::attention_value || row.use == Use::attention_result;
  if (facts.keeps_sums && is_of_attention) return row_of(Use::attention_operand);
  if (facts.is_probability && row.use == Use::batched_operand) return row_of(Use::softmax_result);
  const bool is_curved = facts.exponent > kSquare && facts.exponent <= kMostCurved && is_whole(facts.exponent);
  if (is_curved && row.use == Use::power_base) return row_of(Use::slope_input);
  return row;
}

Segments row_segments(const PolicyRow& row, const CodecSpec& spec, const Shape& shape, std::int64_t width) {
  const std::int64_t group = group_of(spec);
  const std::int64_t row_elems = own_rows(row, width);
  if (group == 0 || row_elems == 0 || row_elems % group == 0) return {};
  const std::int64_t elems = unique_elems(shape);
  if (elems % row_elems != 0 || !lies_in_rows(shape)) return {};
  const bool is_padded = std::holds_alternative<Rotated>(spec);
  const bool costs_much =
      is_padded && static_cast<double>(in_groups(row_elems, group)) > kMostPadding * static_cast<double>(row_elems);
  return costs_much ? Segments{} : Segments{.count = elems / row_elems};
}

std::string site_name(const SiteKey& key) {
  std::string name;
  if (!key.module.empty()) name = fmt::format("{}: ", key.module);
  name += fmt::format("{}.{}", key.op, key.slot);
  if (key.ordinal > 0) name += fmt::format(" #{}", key.ordinal);
  return name;
}

CodecFamily parse_family(std::string_view text) {
  if (text.empty()) return std::nullopt;
  constexpr std::string_view kAllowed = "rotated or affine, as in affine:nearest:group=64";
  const CodecSpec spec = parse_values(fmt::format("codec '{}'", text), text, kAllowed);
  const auto* rotated = std::get_if<Rotated>(&spec);
  if ((rotated == nullptr && !std::holds_alternative<Affine>(spec)) || (rotated != nullptr && rotated->mask_plane)) {
    throw Error(ErrorCode::invalid_spec, fmt::format("session: codec '{}' (allowed: {})", text, kAllowed));
  }
  return spec;
}

CodecSpec in_family(const CodecSpec& spec, const CodecFamily& family) {
  if (!family) return spec;
  const auto* rotated = std::get_if<Rotated>(&spec);
  const auto* affine = std::get_if<Affine>(&spec);
  if (rotated == nullptr && (affine == nullptr || has_floor(*affine))) return spec;
  if (const auto* own = std::get_if<Rotated>(&*family)) {
    if (affine != nullptr) return Affine{affine->bits, affine->rounding, own->group, own->stats};
    return Rotated{rotated->bits, own->group, own->stats, rotated->mask_plane};
  }
  if (rotated != nullptr && rotated->mask_plane) return spec;
  Affine own = std::get<Affine>(*family);
  own.bits = rotated != nullptr ? rotated->bits : affine->bits;
  return own;
}

Policy::Policy(std::string_view preset, std::optional<Bits> bits, std::span<const Rule> rules, CodecFamily family)
    : preset_(preset), bits_(bits), family_(std::move(family)) {
  for (const Rule& rule : rules) rules_.push_back({rule.sites, row_of(rule)});
  if (bits && !spec_of_bits(bits->value)) {
    throw Error(ErrorCode::invalid_spec, fmt::format("session: bits {} (allowed: {})", bits->value, usual_bits()));
  }
  lossless_ = preset == "exact";
  if (lossless_ || preset == "default") {
    if (lossless_ && bits) throw Error(ErrorCode::invalid_spec, "session: preset 'exact' takes no bits");
    return;
  }
  if (is_division(preset)) {
    std::string_view rest = preset.substr(kDivision.size());
    divides_all_ = rest.ends_with(kAll);
    if (divides_all_) rest.remove_suffix(kAll.size());
    division_ = parse_division(preset, rest);
    const bool states_bits = rest.size() > 1 && std::isdigit(static_cast<unsigned char>(rest[1])) != 0;
    if (bits && !states_bits) division_->bits = *bits;
    if (!bits || !states_bits) return;
  }
  if (bits) throw Error(ErrorCode::invalid_spec, fmt::format("session: preset '{}' states its own bits", preset));
  uniform_ = parse_values(fmt::format("preset '{}'", preset), preset, kPresets);
}

const PolicyRow& Policy::row(const SiteKey& site) const {
  const PolicyRow& own = policy_table()[static_cast<std::size_t>(site.use)];
  if (own.treatment == Treatment::exactly) return own;
  const bool goes_with_result = own.treatment == Treatment::again_or_exactly;
  const OwnRow* const rule = rule_for(goes_with_result ? site_of_result(site) : site);
  if (rule == nullptr || !rule->row) return own;
  if (goes_with_result) return kBesideKeptResult;
  const bool is_codec = !std::holds_alternative<Copy>(rule->row->spec);
  return is_codec && keeps_no_values(own) ? own : *rule->row;
}

const Policy::OwnRow* Policy::rule_for(const SiteKey& site) const {
  if (rules_.empty()) return nullptr;
  const std::string place = fmt::format("{}.{}", site.op, site.slot);
  const std::string name = site_name(site);
  const std::string use = fmt::format("{}{}", kForUses, to_string(site.use));
  const auto found = std::ranges::find_if(rules_, [&](const OwnRow& candidate) {
    const char* const pattern = candidate.sites.c_str();
    if (candidate.sites.starts_with(kForUses)) return ::fnmatch(pattern, use.c_str(), 0) == 0;
    return ::fnmatch(pattern, place.c_str(), 0) == 0 || ::fnmatch(pattern, name.c_str(), 0) == 0;
  });
  return found == rules_.end() ? nullptr : &*found;
}

Choice Policy::choose(const PolicyRow& own, DType dtype, const Shape& shape, const OperatorFacts& facts) const {
  const PolicyRow& row = effective_row(own, facts);
  if (row.treatment == Treatment::ruled && std::holds_alternative<Copy>(row.spec)) return as_is(row.reason);
  if (row.treatment == Treatment::shape_only) return {{Keep::shape_only}, row.reason};
  if (facts.recomputable && recomputes(row)) {
    return {{Keep::recomputed}, "computed again in backward, from its arguments as they are kept"};
  }
  if (dtype == DType::boolean) return encoded(Mask{}, "booleans take one bit");
  if (is_integer(dtype)) return choose_integer(row, dtype, facts);
  if (dtype == DType::f64) return as_is("no codec takes f64");
  return choose_float(row, dtype, shape, facts);
}

Choice Policy::choose_float(const PolicyRow& row, DType dtype, const Shape& shape, const OperatorFacts& facts) const {
  if (division_ && row.treatment == Treatment::codec_by_map) {
    const std::optional<Dual> spec = dual_spec(*division_, shape);
    if (spec) return encoded(*spec, row.reason);
  }
  Choice choice = choose_by_table(row, dtype, unique_elems(shape), facts);
  if (const auto* dual = std::get_if<Dual>(&choice.spec); choice.how == Keep::encoded && dual != nullptr) {
    const std::optional<Dual> spec = dual_spec(*dual, shape);
    if (!spec) return as_is("no maps to average");
    choice.spec = *spec;
  }
  return choice;
}

Choice Policy::choose_by_table(const PolicyRow& row, DType dtype, std::int64_t elems,
                               const OperatorFacts& facts) const {
  if (row.treatment == Treatment::ruled) {
    if (code_bits(row.spec, dtype) >= static_cast<int>(8 * dtype_bytes(dtype)))
      return as_is("its own type is as small");
    return encoded(row.spec, row.reason);
  }
  switch (row.treatment) {
    case Treatment::sign:
      if (uniform_) break;
      return {{Keep::encoded, Mask{}, /*not_negative=*/true}, row.reason};
    case Treatment::interval:
      if (uniform_) break;
      return choose_interval(row, dtype, facts);
    case Treatment::scaled_mask:
      if (uniform_) break;
      return encoded(Mask{.on = facts.factor}, row.reason);
    case Treatment::not_known:
      if (uniform_) break;
      return as_is(row.reason);
    case Treatment::codec_if_large:
      if (elems < kLargeElems) return as_is("small, and its gradient is sensitive");
      break;
    case Treatment::codec_if_whole:
      if (!is_whole(facts.exponent)) return as_is("its gradient is a root or a quotient");
      break;
    case Treatment::for_again:
      if (facts.recomputable && runs_again()) return as_is("its layer runs again in backward, on just that");
      break;
    case Treatment::codec_by_row:
    case Treatment::codec_by_map:
    case Treatment::codec_by_width:
    case Treatment::again_or_codec:
    case Treatment::codec:
    case Treatment::pointwise: break;
    default: return as_is(row.reason);
  }
  if (lossless_) return as_is("preset 'exact' changes no value");
  if (division_ && !divides_all_) return as_is("preset 'division' keeps what has no maps");
  if (facts.meets_elems >= kBroadcast * elems) return as_is("small beside what it is multiplied with");
  if (uniform_) {
    if (std::holds_alternative<Copy>(*uniform_)) return as_is("the preset keeps everything");
    return encoded(*uniform_, "the preset treats all alike");
  }
  if (facts.after_model && has_poles_in_a_loss(row.use)) return as_is("in a loss, which may divide by it");
  const std::int64_t rows = own_rows(row, facts.row_elems);
  const std::int64_t summed = row.treatment == Treatment::codec_by_map ? facts.row_elems : rows;
  const bool short_rows = summed > 0 && summed < kShortRow;
  const bool pointwise = row.treatment == Treatment::pointwise || row.treatment == Treatment::codec_if_whole;
  const bool is_exponential = row.use == Use::exponential_result;
  const bool near_loss = facts.after_model && (pointwise || is_product(row.use) || is_exponential);
  const bool tiny_rows = is_norm(row.use) && facts.row_elems > 0 && facts.row_elems < kTinyRow;
  const bool is_steep = row.use == Use::power_base && facts.exponent > kMostCurved;
  const bool is_fine = near_loss || tiny_rows || is_steep || (pointwise && facts.meets_itself);
  const bool is_summed = facts.meets_parameter && facts.meets_elems > 0 && elems >= kBroadcast * facts.meets_elems;
  const bool is_wide = row.treatment == Treatment::codec_by_width && facts.row_elems >= kWideRow;
  CodecSpec spec =
      is_fine ? kFine
              : in_family(widened(is_summed || is_wide ? Rotated{.bits = Bits(2)} : row.spec, short_rows), family_);
  if (!family_) spec = for_rows(spec, rows);
  if (code_bits(spec, dtype) >= static_cast<int>(8 * dtype_bytes(dtype))) return as_is("its own type is as small");
  return encoded(spec, near_loss ? "after the model, in a loss" : row.reason);
}

/// Whether operators run again in backward. A preset that changes no value, or treats everything alike, has no
/// compressed arguments that a result would have to match.
bool Policy::runs_again() const { return !lossless_ && !uniform_ && (!division_ || divides_all_); }

bool Policy::recomputes(const PolicyRow& row) const {
  return runs_again() && (row.treatment == Treatment::again_or_codec || row.treatment == Treatment::again_or_exactly ||
                          row.treatment == Treatment::again_or_as_is);
}

CodecSpec Policy::widened(const CodecSpec& spec, bool short_rows) const {
  const auto* rotated = std::get_if<Rotated>(&spec);
  if (rotated == nullptr) return spec;
  constexpr int kUsual = 2;
  constexpr int kMost = 4;
  const int asked = bits_.value_or(Bits(kUsual)).value;
  if (asked > kMost) return *spec_of_bits(asked);
  const int own = rotated->bits.value;
  return Rotated{.bits = Bits(short_rows ? kMost : std::clamp(own + asked - kUsual, own == kMost ? kMost : 1, kMost))};
}

}  // namespace actzip
