// Blocks of an arena that lie in memory.
#pragma once

#include <memory>

#include "store/blocks.hpp"

namespace actzip::store {

/// Private memory of the process, in huge pages where the system has them.
std::shared_ptr<BlockSource> anonymous_blocks();

}  // namespace actzip::store
