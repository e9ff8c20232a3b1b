#include "actzip/levels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "actzip/error.hpp"
#include "actzip/registry.hpp"

namespace actzip {

namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

constexpr std::array kLevels = {
    Level{.name = "actnn:L0",
          .runs_as = "actnn:L0",
          .reach = LevelReach::nothing,
          .strategy = "values as they are; masks and indices in few bits"},
    Level{.name = "actnn:L1",
          .runs_as = "actnn:L1",
          .reach = LevelReach::layers,
          .bits = 4,
          .strategy = "inputs of convolutions and linear layers"},
    Level{.name = "actnn:L2", .runs_as = "actnn:L2", .bits = 4, .strategy = "everything"},
    Level{.name = "actnn:L2.5",
          .runs_as = "actnn:L2.5",
          .bits = 2,
          .adapt = "sample",
          .strategy = "everything, more bits for some samples"},
    Level{.name = "actnn:L3",
          .runs_as = "actnn:L3",
          .bits = 2,
          .adapt = "sample+layer",
          .strategy = "everything, more bits for some samples and layers"},
    Level{.name = "actnn:L3.1",
          .runs_as = "actnn:L3.1",
          .bits = 2,
          .adapt = "sample+layer",
          .autotune = false,
          .empty_cache_below = 0.2,
          .chunk_bytes = 3 * kGiB,
          .strategy = "as L3, and less memory beside the activations"},
    Level{.name = "actnn:L4",
          .runs_as = "actnn:L3",
          .to_host = true,
          .bits = 2,
          .adapt = "sample+layer",
          .strategy = "as L3, codes in host memory"},
    Level{.name = "actnn:L5",
          .runs_as = "actnn:L3",
          .to_host = true,
          .bits = 2,
          .adapt = "sample+layer",
          .strategy = "as L4, and defragmentation"},
    Level{.name = "actnn:swap",
          .runs_as = "actnn:L0",
          .to_host = true,
          .reach = LevelReach::nothing,
          .strategy = "values as they are, in host memory"},
    Level{.name = "gact:L0",
          .runs_as = "gact:L0",
          .reach = LevelReach::nothing,
          .strategy = "values as they are; masks and indices in few bits"},
    Level{.name = "gact:L1", .runs_as = "gact:L1", .bits = 4, .strategy = "everything"},
    Level{.name = "gact:L1.1", .runs_as = "gact:L1.1", .bits = 8, .strategy = "everything"},
    Level{.name = "gact:L1.2", .runs_as = "gact:L1.2", .bits = 2, .strategy = "everything"},
    Level{.name = "gact:L2",
          .runs_as = "gact:L2",
          .bits = 4,
          .adapt = "layer",
          .strategy = "everything, more bits for some tensors"},
    Level{.name = "gact:L2.1",
          .runs_as = "gact:L2.1",
          .bits = 3,
          .adapt = "layer",
          .strategy = "everything, more bits for some tensors"},
    Level{.name = "gact:L2.2",
          .runs_as = "gact:L2.2",
          .bits = 2,
          .adapt = "layer",
          .strategy = "everything, more bits for some tensors"},
    Level{.name = "gact:L3",
          .runs_as = "gact:L2",
          .to_host = true,
          .bits = 4,
          .adapt = "layer",
          .strategy = "as L2, codes in host memory"},
    Level{.name = "gact:swap",
          .runs_as = "gact:L0",
          .to_host = true,
          .reach = LevelReach::nothing,
          .strategy = "values as they are, in host memory"},
    Level{.name = "gact:L4bit-swap",
          .runs_as = "gact:L1",
          .to_host = true,
          .bits = 4,
          .strategy = "as L1, codes in host memory"},
};

/// The text of the codec that the policy would use for so many bits.
std::string codec_for(double bits) {
  if (const auto spec = spec_of_bits(bits)) return to_string(*spec);
  throw Error(ErrorCode::invalid_spec,
              fmt::format("session: bits {} for layers alone (allowed: {})", bits, usual_bits()));
}

constexpr std::string_view kGact = "gact:";

/// Adds rules for functions whose gradient is not known: GACT encodes whatever is saved, by whatever function.
void add_unknown(std::vector<Rule>& rules, double bits) {
  for (const char* uses : {"use:unknown", "use:foreign", "use:checkpoint_input"}) {
    rules.push_back({uses, codec_for(bits > Rotated::kMostBits ? Affine::kMostBits : Rotated::kMostBits)});
  }
}

std::string names_of(std::string_view family) {
  std::string names;
  for (const Level& level : kLevels) {
    if (level.name.starts_with(family)) names += fmt::format("{}{}", names.empty() ? "" : ", ", level.name);
  }
  return names;
}

}  // namespace

std::span<const Level> levels() { return kLevels; }

const Level* find_level(std::string_view preset) {
  const auto found = std::ranges::find(kLevels, preset, &Level::name);
  if (found != kLevels.end()) return &*found;
  for (const std::string_view family : {std::string_view("actnn:"), kGact}) {
    if (!preset.starts_with(family)) continue;
    throw Error(ErrorCode::invalid_spec, fmt::format("session: level '{}' (allowed: {})", preset, names_of(family)));
  }
  return nullptr;
}

SessionOptions written_out(SessionOptions options) {
  const Level* level = find_level(options.preset);
  if (level == nullptr) return options;
  if (level->to_host && options.offload.empty()) options.offload = kToHost;
  options.preset = level->reach == LevelReach::everything ? "default" : "exact";
  if (level->reach == LevelReach::nothing) return options;
  const double bits = options.bits.value_or(level->bits);
  if (level->reach == LevelReach::everything) {
    options.bits = bits;
    if (options.adapt.empty()) options.adapt = level->adapt;
    if (level->name.starts_with(kGact)) add_unknown(options.rules, bits);
    return options;
  }
  options.bits.reset();
  for (const char* uses : {"use:convolution_*", "use:linear_*"}) options.rules.push_back({uses, codec_for(bits)});
  return options;
}

}  // namespace actzip
