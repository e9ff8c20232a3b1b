// Trainings that are known to work, as the options one would type.
#pragma once

#include <span>
#include <string_view>

namespace actzip::train {

struct Recipe {
  std::string_view name;
  std::string_view options;      ///< separated by blanks; what is typed beside the recipe takes their place
  std::string_view description;  ///< the data it wants, and where it ends
};

std::span<const Recipe> recipes();

/// Throws WrongUsage naming those there are.
const Recipe& find_recipe(std::string_view name);

}  // namespace actzip::train
