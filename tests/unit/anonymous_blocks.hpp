// Arena blocks in memory instead of a file.
#pragma once

#include <memory>

#include "store/blocks.hpp"

namespace actzip::store {

/// Blocks of private process memory, in huge pages if the system supports them.
std::shared_ptr<BlockSource> anonymous_blocks();

}  // namespace actzip::store
