#include "list.hpp"

#include <fmt/format.h>

#include "actzip/levels.hpp"
#include "models/model.hpp"
#include "recipes.hpp"

namespace actzip::train {

std::string list_text() {
  std::string text = "Models (--model)\n";
  for (const models::ModelInfo& model : models::models()) {
    text += fmt::format("  {:<18} {:<9} {:>12} parameters  {}\n", model.name, to_string(model.kind), model.parameters,
                        model.description);
  }
  text += "\nRecipes (--recipe)\n";
  for (const Recipe& recipe : recipes()) {
    text += fmt::format("  {:<30} {}\n  {:<30} {}\n", recipe.name, recipe.description, "", recipe.options);
  }
  text +=
      "\nPresets (--preset)\n"
      "  none               plain training\n"
      "  exact              only what changes no gradient: masks, indices, shapes\n"
      "  default            2 to 4 bits by the table of docs/policy.md\n"
      "  division           averages and 2-bit residuals for convolutions and batch norms; the rest exact\n"
      "  CODEC              such as rotated:2 or affine:4, for all; 'actzip codecs' lists them\n";
  for (const Level& level : levels()) text += fmt::format("  {:<18} {}\n", level.name, level.strategy);
  return text;
}

}  // namespace actzip::train
