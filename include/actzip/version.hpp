// The only place where a version number is written; CMake and the Python package read it from here.
#pragma once

#define ACTZIP_VERSION_MAJOR 0
#define ACTZIP_VERSION_MINOR 1
#define ACTZIP_VERSION_PATCH 0
#define ACTZIP_VERSION_STRING "0.1.0"

namespace actzip {

/// Version of the byte format (docs/format.md). Bytes written by one format version are decoded by every later release.
inline constexpr int kFormatVersion = 1;

}  // namespace actzip
