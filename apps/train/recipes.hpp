// Recipes: the options of trainings that are known to work.
#pragma once

#include <span>
#include <string_view>

namespace actzip::train {

struct Recipe {
  std::string_view name;
  std::string_view options;      ///< separated by blanks; options typed beside the recipe override them
  std::string_view description;  ///< the data it needs, and the result it reaches
};

std::span<const Recipe> recipes();

/// Returns the recipe of this name. Throws WrongUsage that lists all names if there is none.
const Recipe& find_recipe(std::string_view name);

}  // namespace actzip::train
