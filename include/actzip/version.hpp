// The only place where version numbers are written; CMake and the Python package read them from here.
#pragma once

#define ACTZIP_VERSION_MAJOR 0
#define ACTZIP_VERSION_MINOR 1
#define ACTZIP_VERSION_PATCH 0
#define ACTZIP_VERSION_STRING "0.1.0"

namespace actzip {

/// Version of the byte format (docs/format.md). Every later release decodes the bytes of earlier format versions.
inline constexpr int kFormatVersion = 1;

}  // namespace actzip
