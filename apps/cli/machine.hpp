// Facts about the machine that the program prints.
#pragma once

#include <cstddef>
#include <string>

namespace actzip::cli {

/// "AMD EPYC 9654 ...", or "unknown CPU".
std::string cpu_model();

/// Bytes of the last-level cache; a guess of 32 MiB where the system does not say.
std::size_t cpu_cache_bytes();

/// Bytes of physical memory.
std::size_t memory_bytes();

/// The time now, UTC: "2025-01-31T12:00:00Z".
std::string utc_now();

}  // namespace actzip::cli
