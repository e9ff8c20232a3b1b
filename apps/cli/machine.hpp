// Facts about the machine, for benchmarks and `actzip doctor`.
#pragma once

#include <cstddef>
#include <string>

namespace actzip::cli {

/// "AMD EPYC 9654 ...", or "unknown CPU".
std::string cpu_model();

/// Size of the last-level cache in bytes; assumes 32 MiB if the system does not report it.
std::size_t cpu_cache_bytes();

/// Bytes of physical memory.
std::size_t memory_bytes();

/// The time now, UTC: "2025-01-31T12:00:00Z".
std::string utc_now();

}  // namespace actzip::cli
