// How much memory a session may hold between forward and backward.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <variant>

namespace actzip {

struct HeldBytes {
  std::size_t value = 0;  ///< above 0
};

/// A share of what the framework alone would hold: above 0, at most 1.
struct HeldShare {
  double value = 1.0;
};

/// What the device has left once gradients and the optimizer's state exist, less a reserve for the operators' own
/// buffers.
struct WhatIsLeft {};

using MemoryBudget = std::variant<HeldBytes, HeldShare, WhatIsLeft>;

/// Parses bytes ("4GiB", "500 MB", "1073741824"), a share ("0.25", "25%") or "auto". An empty text is no budget. A
/// number without a unit is a share up to 1, and bytes above. Throws Error(invalid_spec), which names what is allowed.
std::optional<MemoryBudget> parse_budget(std::string_view text);

}  // namespace actzip
