// The output of --list.
#pragma once

#include <string>

namespace actzip::train {

/// Lists models, recipes and presets as a table.
std::string list_text();

}  // namespace actzip::train
