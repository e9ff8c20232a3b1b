// The levels of ActNN and GACT as presets of a session: SessionOptions{.preset = "actnn:L3"}. docs/levels.md says what
// each one means in the original and here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "actzip/session.hpp"

namespace actzip {

/// Which operators a level compresses; masks, indices and shapes are small in all of them.
enum class LevelReach : std::uint8_t {
  nothing,     ///< no values
  layers,      ///< inputs of convolutions and linear layers
  everything,  ///< everything that the policy has a row for
};

struct Level {
  std::string_view name;     ///< the preset: "actnn:L3"
  std::string_view runs_as;  ///< the level itself, or the one that runs where nothing moves bytes
  bool to_host = false;      ///< its bytes go to host memory
  LevelReach reach = LevelReach::everything;
  double bits = 0.0;               ///< fixed, or on average if the level adapts; 0 if values are kept as is
  std::string_view adapt = {};     ///< as in SessionOptions
  bool autotune = true;            ///< a framework may try out which convolution algorithm is fastest
  double empty_cache_below = 0.0;  ///< a framework frees cached memory when less than this share of it is in use
  std::int64_t chunk_bytes = 0;    ///< a convolution's backward runs in parts if it needs more than this; 0: never
  std::string_view strategy = {};  ///< in words
};

/// All levels, ActNN's first.
std::span<const Level> levels();

/// Returns the level of that name, or null if the preset is not a level. Throws Error(invalid_spec), which names the
/// existing levels, for a name such as "actnn:L7".
const Level* find_level(std::string_view preset);

/// Returns the options with a level written out: its preset, its bits, adaptation and offloading unless the options give
/// their own, and its rules, behind those of the options. Options whose preset is not a level are returned unchanged.
SessionOptions written_out(SessionOptions options);

}  // namespace actzip
