// What there is to choose from.
#pragma once

#include <string>

namespace actzip::train {

/// Models, recipes and presets, as a table.
std::string list_text();

}  // namespace actzip::train
