#include "actzip/registry.hpp"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "codec/grammar.hpp"

namespace actzip {

namespace {

constexpr std::array kFloats = {DType::f32, DType::f16, DType::bf16};
constexpr std::array kFloatsAndMask = {DType::f32, DType::f16, DType::bf16, DType::boolean};
constexpr std::array kMaskTypes = {DType::boolean, DType::u8, DType::i8, DType::f32, DType::f16, DType::bf16};
constexpr std::array kIndexInputs = {DType::i64, DType::i32, DType::i16, DType::u8};
constexpr std::array kIndexOutputs = {DType::i64, DType::i32};
constexpr std::array kAllTypes = {DType::f32, DType::f16, DType::bf16, DType::f64, DType::boolean,
                                  DType::u8,  DType::i8,  DType::i16,  DType::i32, DType::i64};

/// Relative squared error by bits. Simulated after format.md on 16 million Gaussian numbers in f32, with statistics in
/// bf16.
struct AffineErrors {
  std::array<double, Affine::kMostBits> nearest{4.496,    0.3013,   0.05495,  0.01196,
                                                2.802e-3, 6.795e-4, 1.680e-4, 4.173e-5};
  std::array<double, Affine::kMostBits> stochastic{7.066,    0.6006,   0.1099,   0.02395,
                                                   5.615e-3, 1.363e-3, 3.361e-4, 8.338e-5};
  std::array<double, Affine::kMostBits> dithered{2.712,    0.3012,   0.05531,  0.01205,
                                                 2.822e-3, 6.830e-4, 1.681e-4, 4.169e-5};
};
constexpr AffineErrors kAffineErrors;
constexpr std::array<double, Rotated::kMostBits> kRotatedErrors{0.567, 0.1313, 0.03512, 9.391e-3};
/// The same on a million numbers, for maps of 16 x 16 and blocks of 8 x 8.
struct DualErrors {
  std::array<double, Dual::kMostBits> stochastic{7.007,    0.5954,   0.1090,   0.02374,
                                                 5.563e-3, 1.351e-3, 3.326e-4, 8.282e-5};
  std::array<double, Dual::kMostBits> dithered{2.686, 0.2986, 0.05487, 0.01194, 2.793e-3, 6.772e-4, 1.669e-4, 4.127e-5};
};
constexpr DualErrors kDualErrors;
constexpr double kBf16Error = 2.759e-6;
constexpr double kF16Error = 4.312e-8;

using Variants = std::vector<CodecSpec>;

Variants affine_variants() {
  Variants variants;
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic, Rounding::dithered}) {
    for (int bits = 1; bits <= Affine::kMostBits; ++bits)
      variants.emplace_back(Affine{.bits = Bits(bits), .rounding = rounding});
  }
  return variants;
}

Variants rotated_variants() {
  Variants variants;
  for (const bool mask_plane : {false, true}) {
    for (int bits = 1; bits <= Rotated::kMostBits; ++bits)
      variants.emplace_back(Rotated{.bits = Bits(bits), .mask_plane = mask_plane});
  }
  return variants;
}

Variants index_variants() {
  Variants variants;
  for (const int bits : {1, 2, 4, 8, 16, 32}) variants.emplace_back(Index{.bound = std::int64_t{1} << bits});
  return variants;
}

Variants dual_variants() {
  Variants variants;
  for (const Rounding rounding : {Rounding::stochastic, Rounding::dithered}) {
    for (int bits = 1; bits <= Dual::kMostBits; ++bits)
      variants.emplace_back(Dual{.bits = Bits(bits), .rounding = rounding});
  }
  return variants;
}

/// The entries, and the texts and variants that they point to.
class Registry {
 public:
  Registry() {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      grammars_[i] = std::string(entries_[i].name) + codec::grammar_of(variants_[i].front());
      entries_[i].grammar = grammars_[i];
      entries_[i].variants = variants_[i];
    }
  }
  Registry(const Registry&) = delete;  // the entries point into it
  Registry& operator=(const Registry&) = delete;
  ~Registry() = default;

  [[nodiscard]] std::span<const CodecInfo> entries() const { return entries_; }

 private:
  static constexpr std::size_t kCount = std::variant_size_v<CodecSpec>;
  std::array<std::string, kCount> grammars_;
  std::array<Variants, kCount> variants_ = {
      affine_variants(),
      rotated_variants(),
      Variants{Mask{}},
      index_variants(),
      Variants{Cast{.to = DType::bf16}, Cast{.to = DType::f16}},
      Variants{Copy{}},
      dual_variants(),
  };
  std::array<CodecInfo, kCount> entries_ = {{
      {.name = "affine",
       .summary = "uniform levels between the least and the greatest value of each group",
       .encodes = kFloats,
       .decodes = kFloats},
      {.name = "rotated",
       .summary = "group mean removed, random signs, Hadamard transform, Lloyd-Max levels, unbiasing scale",
       .encodes = kFloats,
       .decodes = kFloatsAndMask},
      {.name = "mask",
       .summary = "one bit an element: inside an interval or not, decoded as two values",
       .encodes = kMaskTypes,
       .decodes = kMaskTypes},
      {.name = "index",
       .summary = "integers below a bound, in the fewest of 1, 2, 4, 8, 16 or 32 bits",
       .encodes = kIndexInputs,
       .decodes = kIndexOutputs},
      {.name = "cast",
       .summary = "another floating type, rounded to nearest even",
       .encodes = kFloats,
       .decodes = kFloats},
      {.name = "copy", .summary = "the bytes as they are", .encodes = kAllTypes, .decodes = kAllTypes},
      {.name = "dual",
       .summary = "averages of blocks, and uniform levels for the residual of each sample and channel",
       .encodes = kFloats,
       .decodes = kFloats},
  }};
};

/// One function for each codec. std::visit selects it, so a new codec does not compile until it has all of them.
struct TraitsOf {
  Traits operator()(const Affine& spec) const {
    return {.byte_equal = true, .unbiased = spec.rounding != Rounding::nearest};
  }
  Traits operator()(const Rotated& spec) const { return {.unbiased = true, .keeps_zeros = spec.mask_plane}; }
  Traits operator()(const Mask& spec) const {
    // A zero lies outside the interval and a 0 bit decodes to zero; a 1 bit decodes to the only sign in the interval.
    const bool zero_is_off = spec.off == 0.0F && (spec.lo >= 0.0F || spec.hi <= 0.0F);
    const bool one_sign = spec.on == 0.0F || (spec.on > 0.0F ? spec.lo >= 0.0F : spec.hi <= 0.0F);
    return {.exact = true, .byte_equal = true, .keeps_zeros = zero_is_off, .keeps_signs = spec.off == 0.0F && one_sign};
  }
  Traits operator()(const Index& /*spec*/) const { return kEverything; }
  Traits operator()(const Cast& /*spec*/) const {
    return {.byte_equal = true, .keeps_zeros = true, .keeps_signs = true};
  }
  Traits operator()(const Copy& /*spec*/) const { return kEverything; }

  Traits operator()(const Dual& /*spec*/) const { return {.byte_equal = true, .unbiased = true}; }

  static constexpr Traits kEverything{
      .exact = true, .byte_equal = true, .unbiased = true, .keeps_zeros = true, .keeps_signs = true};
};

struct ErrorOf {
  double operator()(const Affine& spec) const {
    const auto i = static_cast<std::size_t>(spec.bits.value - 1);
    switch (spec.rounding) {
      case Rounding::nearest: return kAffineErrors.nearest.at(i);
      case Rounding::stochastic: return kAffineErrors.stochastic.at(i);
      case Rounding::dithered: break;
    }
    return kAffineErrors.dithered.at(i);
  }
  double operator()(const Rotated& spec) const {
    return kRotatedErrors.at(static_cast<std::size_t>(spec.bits.value - 1));
  }
  double operator()(const Mask& /*spec*/) const { return 0.0; }
  double operator()(const Index& /*spec*/) const { return 0.0; }
  double operator()(const Cast& spec) const { return spec.to == DType::bf16 ? kBf16Error : kF16Error; }
  double operator()(const Copy& /*spec*/) const { return 0.0; }
  double operator()(const Dual& spec) const {
    const auto& errors = spec.rounding == Rounding::stochastic ? kDualErrors.stochastic : kDualErrors.dithered;
    return errors.at(static_cast<std::size_t>(spec.bits.value - 1));
  }
};

struct CodeBitsOf {
  DType dtype;
  int operator()(const Affine& spec) const { return spec.bits.value; }
  int operator()(const Rotated& spec) const { return spec.bits.value; }
  int operator()(const Mask& /*spec*/) const { return 1; }
  int operator()(const Index& spec) const { return index_bits(spec.bound); }
  int operator()(const Cast& /*spec*/) const { return 16; }
  int operator()(const Copy& /*spec*/) const { return static_cast<int>(8 * dtype_bytes(dtype)); }
  int operator()(const Dual& spec) const { return spec.bits.value; }
};

}  // namespace

std::span<const CodecInfo> codecs() {
  static const Registry registry;
  return registry.entries();
}

const CodecInfo& codec_info(const CodecSpec& spec) { return codecs()[spec.index()]; }

Traits traits(const CodecSpec& spec) { return std::visit(TraitsOf{}, spec); }

double expected_error(const CodecSpec& spec) {
  validate(spec);
  return std::visit(ErrorOf{}, spec);
}

std::optional<CodecSpec> spec_of_bits(double bits) {
  if (bits == Affine::kMostBits) return Affine{.bits = Bits(Affine::kMostBits), .rounding = Rounding::dithered};
  if (bits < 1.0 || bits > Rotated::kMostBits || std::trunc(bits) != bits) return std::nullopt;
  return Rotated{.bits = Bits(static_cast<int>(bits))};
}

std::string usual_bits() {
  std::string text;
  for (int bits = 1; bits <= Rotated::kMostBits; ++bits) text += fmt::format("{}, ", bits);
  return text + fmt::format("{}", Affine::kMostBits);
}

int code_bits(const CodecSpec& spec, DType dtype) { return std::visit(CodeBitsOf{dtype}, spec); }

}  // namespace actzip
