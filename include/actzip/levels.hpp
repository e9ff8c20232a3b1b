// The levels of ActNN and GACT, as presets of a session: SessionOptions{.preset = "actnn:L3"}. docs/levels.md says what
// each was there and is here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "actzip/session.hpp"

namespace actzip {

/// Which operators a level compresses; masks, indices and shapes are small in all of them.
enum class LevelReach : std::uint8_t {
  nothing,     ///< values stay as they are
  layers,      ///< inputs of convolutions and linear layers
  everything,  ///< whatever the policy has a row for
};

struct Level {
  std::string_view name;     ///< as a preset: "actnn:L3"
  std::string_view runs_as;  ///< itself, or what it is where nothing moves bytes
  bool to_host = false;      ///< what it keeps goes to host memory, if SessionOptions::offload says where
  LevelReach reach = LevelReach::everything;
  double bits = 0.0;               ///< fixed, or on average if it adapts; 0 where values stay as they are
  std::string_view adapt = {};     ///< as in SessionOptions
  bool autotune = true;            ///< a framework may try out which of its convolutions is fastest
  double empty_cache_below = 0.0;  ///< a framework gives memory back when less than this part of it is in use
  std::int64_t chunk_bytes = 0;    ///< a convolution's backward is done in parts if it needs more; 0: never
  std::string_view strategy = {};  ///< in words
};

/// All of them, ActNN's first.
std::span<const Level> levels();

/// The level of that name; null if the preset is another one. Throws Error(invalid_spec), which names the levels there
/// are, for a name such as "actnn:L7".
const Level* find_level(std::string_view preset);

/// The same options with what the preset stands for written out, if it is a level: its own preset, bits and adaptation,
/// where none were given, and rules, behind those that were. Other options are given back as they are.
SessionOptions written_out(SessionOptions options);

}  // namespace actzip
