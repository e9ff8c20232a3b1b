#include "actzip/spec.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "actzip/registry.hpp"
#include "codec/grammar.hpp"
#include "codec/message.hpp"

namespace actzip {

namespace {

using codec::fail;

// Each field type has two functions: text_of(), and its inverse read(), which returns whether it understood the text.

template <class Number>
std::string number_text(Number value) {
  std::array<char, 64> buffer{};
  const auto [end, fault] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), end};
}

template <class Number>
bool read_number(std::string_view text, Number& value) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  return fault == std::errc{} && end == text.data() + text.size();
}

template <class Enum, std::size_t Count>
bool read_name(std::string_view text, const std::array<Enum, Count>& values, Enum& value) {
  for (const Enum candidate : values) {
    if (text != to_string(candidate)) continue;
    value = candidate;
    return true;
  }
  return false;
}

constexpr std::array kRoundings = {Rounding::nearest, Rounding::stochastic, Rounding::dithered};
constexpr std::array kUnbiased = {Rounding::stochastic, Rounding::dithered};
constexpr std::array kStatsTypes = {StatsType::bf16, StatsType::f32};
constexpr std::array kMaskSides = {MaskSide::off, MaskSide::on};
constexpr std::array kCastTypes = {DType::bf16, DType::f16};

std::string text_of(Bits bits) { return number_text(bits.value); }
std::string text_of(GroupSize group) { return number_text(group.value); }
std::string text_of(std::int64_t value) { return number_text(value); }
std::string text_of(float value) { return number_text(value); }
std::string text_of(Rounding rounding) { return std::string(to_string(rounding)); }
std::string text_of(StatsType stats) { return std::string(to_string(stats)); }
std::string text_of(MaskSide side) { return std::string(to_string(side)); }
std::string text_of(DType dtype) { return std::string(to_string(dtype)); }
std::string text_of(bool mask_plane) { return mask_plane ? "mask" : ""; }
std::string text_of(const MapSize& size) {
  if (size.depth != 1) return fmt::format("{}x{}x{}", size.depth, size.height, size.width);
  if (size.height != 1) return fmt::format("{}x{}", size.height, size.width);
  return number_text(size.width);
}

bool read(std::string_view text, Bits& bits) { return read_number(text, bits.value); }
bool read(std::string_view text, GroupSize& group) { return read_number(text, group.value); }
bool read(std::string_view text, std::int64_t& value) { return read_number(text, value); }
bool read(std::string_view text, float& value) { return read_number(text, value); }
bool read(std::string_view text, Rounding& rounding) { return read_name(text, kRoundings, rounding); }
bool read(std::string_view text, StatsType& stats) { return read_name(text, kStatsTypes, stats); }
bool read(std::string_view text, MaskSide& side) { return read_name(text, kMaskSides, side); }
bool read(std::string_view text, DType& dtype) { return read_name(text, kCastTypes, dtype); }
bool read(std::string_view text, bool& mask_plane) {
  if (text != "mask") return false;
  return mask_plane = true;
}

/// One to three numbers, separated by x; the last one is the width.
bool read(std::string_view text, MapSize& size) {
  std::array<std::int64_t, 3> extents = {1, 1, 1};
  std::size_t count = 0;
  for (bool more = true; more; ++count) {
    if (count == extents.size()) return false;
    std::shift_left(extents.begin(), extents.end(), 1);
    const std::size_t cross = text.find('x');
    if (!read_number(text.substr(0, cross), extents.back())) return false;
    more = cross != std::string_view::npos;
    if (more) text.remove_prefix(cross + 1);
  }
  size = {extents[0], extents[1], extents[2]};
  return true;
}

/// The values that a field may have, as messages and as grammars list them.
struct Allowed {
  std::string in_messages;
  std::string in_grammar;
};

Allowed range(std::int64_t least, std::int64_t most) {
  return {fmt::format("{} to {}", least, most), fmt::format("{}..{}", least, most)};
}

Allowed powers_of_two(int least, int most) {
  std::vector<int> values;
  for (int value = least; value <= most; value *= 2) values.push_back(value);
  const bool is_short = values.size() <= 2;
  return {fmt::format("{}", fmt::join(values, ", ")),
          is_short ? fmt::format("{}", fmt::join(values, "|")) : fmt::format("{}..{}", least, most)};
}

template <class Value, std::size_t Count>
Allowed one_of(const std::array<Value, Count>& values) {
  std::vector<std::string> names;
  for (const Value value : values) names.push_back(text_of(value));
  return {fmt::format("{}", fmt::join(names, ", ")), fmt::format("{}", fmt::join(names, "|"))};
}

/// How a field is written. Words such as `2` and `dithered` stand alone; keyed fields have their name, as in
/// `group=128`. Bits and the type of a cast (always_word) are written even if they have their default.
enum class Style { always_word, word, keyed };

/// One member of a codec's parameters.
template <class Spec>
struct Field {
  std::string_view name;
  Style style;
  Allowed allowed;
  std::function<bool(std::string_view, Spec&)> read;
  std::function<std::string(const Spec&)> text;
  std::function<bool(const Spec&)> valid;
};

template <class Spec, class Value, class Valid>
Field<Spec> field(std::string_view name, Style style, Allowed allowed, Value Spec::*member, Valid valid) {
  return {name,
          style,
          std::move(allowed),
          [member](std::string_view text, Spec& spec) { return read(text, spec.*member); },
          [member](const Spec& spec) { return text_of(spec.*member); },
          [member, valid](const Spec& spec) { return valid(spec.*member); }};
}

template <class Spec>
Field<Spec> bits_field() {
  return field("bits", Style::always_word, range(1, Spec::kMostBits), &Spec::bits,
               [](Bits bits) { return bits.value >= 1 && bits.value <= Spec::kMostBits; });
}

bool is_power_of_two(std::int64_t value, std::int64_t least, std::int64_t most) {
  return value >= least && value <= most && (value & (value - 1)) == 0;
}

template <class Spec>
Field<Spec> group_field() {
  return field("group", Style::keyed, powers_of_two(Spec::kLeastGroup, Spec::kMostGroup), &Spec::group,
               [](GroupSize group) { return is_power_of_two(group.value, Spec::kLeastGroup, Spec::kMostGroup); });
}

template <class Spec>
Field<Spec> stats_field() {
  return field("stats", Style::keyed, one_of(kStatsTypes), &Spec::stats,
               [](StatsType stats) { return stats <= StatsType::f32; });
}

bool is_rounding(Rounding rounding) { return rounding <= Rounding::dithered; }
bool is_number(float value) { return !std::isnan(value); }

// The grammar of each codec, in the order of its canonical text.

const Allowed kAnyNumber = {"any number but NaN, with inf and -inf", "X"};
constexpr float kNoFloor = Affine{}.floor;

const std::vector<Field<Affine>>& fields(const Affine& /*spec*/) {
  static const std::vector<Field<Affine>> all = {
      bits_field<Affine>(), field("rounding", Style::word, one_of(kRoundings), &Affine::rounding, is_rounding),
      group_field<Affine>(), stats_field<Affine>(),
      field("floor", Style::keyed, {"-2^126 to 2^126, or -inf for none", "X"}, &Affine::floor,
            [](float floor) { return floor == kNoFloor || std::abs(floor) <= 0x1p126F; })};
  return all;
}

const std::vector<Field<Rotated>>& fields(const Rotated& /*spec*/) {
  static const std::vector<Field<Rotated>> all = {
      bits_field<Rotated>(),
      field("mask_plane", Style::word, {"mask", "mask"}, &Rotated::mask_plane, [](bool) { return true; }),
      group_field<Rotated>(), stats_field<Rotated>()};
  return all;
}

const std::vector<Field<Mask>>& fields(const Mask& /*spec*/) {
  static const std::vector<Field<Mask>> all = {
      field("lo", Style::keyed, kAnyNumber, &Mask::lo, is_number),
      field("hi", Style::keyed, kAnyNumber, &Mask::hi, is_number),
      field("off", Style::keyed, kAnyNumber, &Mask::off, is_number),
      field("on", Style::keyed, kAnyNumber, &Mask::on, is_number),
      field("nan", Style::keyed, one_of(kMaskSides), &Mask::nan, [](MaskSide side) { return side <= MaskSide::on; })};
  return all;
}

const std::vector<Field<Index>>& fields(const Index& /*spec*/) {
  static const std::vector<Field<Index>> all = {
      field("bound", Style::keyed, range(1, Index::kMostBound), &Index::bound,
            [](std::int64_t bound) { return bound >= 1 && bound <= Index::kMostBound; })};
  return all;
}

const std::vector<Field<Cast>>& fields(const Cast& /*spec*/) {
  static const std::vector<Field<Cast>> all = {
      field("type", Style::always_word, one_of(kCastTypes), &Cast::to,
            [](DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; })};
  return all;
}

const std::vector<Field<Copy>>& fields(const Copy& /*spec*/) {
  static const std::vector<Field<Copy>> none;
  return none;
}

/// The largest allowed extent of a map, and the largest number of channels.
constexpr std::int64_t kMostExtent = 0x7fffffff;

const std::vector<Field<Dual>>& fields(const Dual& /*spec*/) {
  const auto is_extent = [](std::int64_t extent) { return extent >= 1 && extent <= kMostExtent; };
  static const std::vector<Field<Dual>> all = {
      bits_field<Dual>(),
      field("rounding", Style::word, one_of(kUnbiased), &Dual::rounding,
            [](Rounding rounding) { return is_rounding(rounding) && rounding != Rounding::nearest; }),
      field("block", Style::keyed, powers_of_two(Dual::kLeastBlock, Dual::kMostBlock), &Dual::block,
            [](std::int64_t block) { return is_power_of_two(block, Dual::kLeastBlock, Dual::kMostBlock); }),
      field("size", Style::keyed,
            {fmt::format("one to three extents such as 14x14, each 1 to {}", kMostExtent), "WIDTH|HxW|DxHxW"},
            &Dual::size,
            [is_extent](const MapSize& s) { return is_extent(s.depth) && is_extent(s.height) && is_extent(s.width); }),
      field("last", Style::keyed, {fmt::format("1 to {} channels", kMostExtent), "CHANNELS"}, &Dual::last, is_extent)};
  return all;
}

std::string name_of(const CodecSpec& spec) { return std::string(codec_info(spec).name); }

std::string not_supported(std::string_view field, std::string_view given, const CodecSpec& spec,
                          std::string_view allowed) {
  return fmt::format("{}={} is not supported by {} (allowed: {})", field, given, name_of(spec), allowed);
}

/// What is wrong with a combination of fields; empty if nothing is.
template <class Spec>
std::string fault_between_fields(const Spec& /*spec*/) {
  return {};
}
std::string fault_between_fields(const Affine& spec) {
  if (spec.floor == kNoFloor || spec.rounding == Rounding::nearest) return {};
  return fmt::format("rounding={}, floor={} is not supported by affine (allowed: a floor with rounding=nearest)",
                     text_of(spec.rounding), text_of(spec.floor));
}
std::string fault_between_fields(const Mask& spec) {
  if (spec.lo < spec.hi) return {};
  return fmt::format("lo={}, hi={} is not supported by mask (allowed: lo < hi)", text_of(spec.lo), text_of(spec.hi));
}

std::string fault_between_fields(const Dual& spec) {
  // In floating point, because the product of integers may overflow. It is exact enough, as the limit is far below
  // that.
  const auto positions = static_cast<double>(spec.size.depth) * static_cast<double>(spec.size.height) *
                         static_cast<double>(spec.size.width);
  if (positions * static_cast<double>(spec.last) <= 0x1p48) return {};
  return fmt::format("size={}, last={} is not supported by dual (allowed: 2^48 elements in a sample)",
                     text_of(spec.size), spec.last);
}

/// What is wrong with a spec, as the end of an error message; empty if nothing is.
std::string fault_of(const CodecSpec& spec) {
  return std::visit(
      [&](const auto& codec) {
        for (const auto& field : fields(codec)) {
          if (!field.valid(codec)) return not_supported(field.name, field.text(codec), spec, field.allowed.in_messages);
        }
        return fault_between_fields(codec);
      },
      spec);
}

/// Reads the parts behind the name into the fields of one codec, each field at most once.
template <class Spec>
class PartReader {
 public:
  explicit PartReader(Spec& spec) : spec_(spec), seen_(fields(spec).size()) {}

  /// Reads one part. Returns what is wrong with it; empty if nothing is.
  std::string take(std::string_view part) {
    const std::size_t equals = part.find('=');
    const bool keyed = equals != std::string_view::npos;
    const std::string_view value = keyed ? part.substr(equals + 1) : part;
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      const Field<Spec>& field = fields(spec_)[i];
      if (keyed != (field.style == Style::keyed)) continue;
      if (keyed && field.name != part.substr(0, equals)) continue;
      if (!field.read(value, spec_)) {
        if (keyed) return not_supported(field.name, value, spec_, field.allowed.in_messages);
        continue;
      }
      if (seen_[i]) return fmt::format("{} is given twice (allowed: once)", field.name);
      seen_[i] = true;
      return {};
    }
    return fmt::format("'{}' is not a part of {} (allowed: {})", part, name_of(spec_), codec_info(spec_).grammar);
  }

 private:
  Spec& spec_;
  std::vector<bool> seen_;
};

/// The codec of that name, with default fields; nothing if there is none.
template <std::size_t... Numbers>
std::optional<CodecSpec> default_spec(std::string_view name, std::index_sequence<Numbers...> /*codecs*/) {
  std::optional<CodecSpec> found;
  ((name == codecs()[Numbers].name ? void(found.emplace(std::in_place_index<Numbers>)) : void()), ...);
  return found;
}

std::string codec_names() {
  std::string names;
  for (const CodecInfo& info : codecs()) names.append(names.empty() ? "" : ", ").append(info.name);
  return names;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t colon = 0; (colon = text.find(':')) != std::string_view::npos; text.remove_prefix(colon + 1)) {
    parts.push_back(text.substr(0, colon));
  }
  parts.push_back(text);
  return parts;
}

}  // namespace

std::string_view to_string(Rounding rounding) noexcept {
  switch (rounding) {
    case Rounding::nearest: return "nearest";
    case Rounding::stochastic: return "stochastic";
    case Rounding::dithered: return "dithered";
  }
  return "unknown";
}

std::string_view to_string(StatsType stats) noexcept {
  switch (stats) {
    case StatsType::bf16: return "bf16";
    case StatsType::f32: return "f32";
  }
  return "unknown";
}

std::string_view to_string(MaskSide side) noexcept {
  switch (side) {
    case MaskSide::off: return "off";
    case MaskSide::on: return "on";
  }
  return "unknown";
}

std::string codec::grammar_of(const CodecSpec& spec) {
  std::string grammar;
  const auto append = [&](const auto& field) {
    const bool keyed = field.style == Style::keyed;
    grammar += fmt::format("[:{}{}{}]", keyed ? field.name : "", keyed ? "=" : "", field.allowed.in_grammar);
  };
  std::visit([&](const auto& codec) { std::ranges::for_each(fields(codec), append); }, spec);
  return grammar;
}

std::string to_string(const CodecSpec& spec) {
  std::string result = name_of(spec);
  std::visit(
      [&]<class Spec>(const Spec& codec) {
        for (const Field<Spec>& field : fields(codec)) {
          // Compares texts instead of values, because -0 equals 0 but decodes differently.
          const std::string text = field.text(codec);
          if (field.style != Style::always_word && text == field.text(Spec{})) continue;
          result += ':';
          if (field.style == Style::keyed) result.append(field.name).append("=");
          result += text;
        }
      },
      spec);
  return result;
}

CodecSpec parse_spec(std::string_view text) {
  const std::vector<std::string_view> parts = split(text);
  std::optional<CodecSpec> spec =
      default_spec(parts.front(), std::make_index_sequence<std::variant_size_v<CodecSpec>>{});
  if (!spec) {
    fail(ErrorCode::invalid_spec, "parse_spec: '{}': '{}' is not a codec (allowed: {})", text, parts.front(),
         codec_names());
  }
  std::visit(
      [&](auto& codec) {
        PartReader reader(codec);
        for (std::size_t i = 1; i < parts.size(); ++i) {
          const std::string fault = reader.take(parts[i]);
          if (!fault.empty()) fail(ErrorCode::invalid_spec, "parse_spec: '{}': {}", text, fault);
        }
      },
      *spec);
  if (const std::string fault = fault_of(*spec); !fault.empty()) {
    fail(ErrorCode::invalid_spec, "parse_spec: '{}': {}", text, fault);
  }
  return *spec;
}

void codec::check_spec(std::string_view call, const CodecSpec& spec) {
  if (const std::string fault = fault_of(spec); !fault.empty()) {
    fail(ErrorCode::invalid_spec, "{}: '{}': {}", call, to_string(spec), fault);
  }
}

void validate(const CodecSpec& spec) { codec::check_spec("validate", spec); }

}  // namespace actzip
