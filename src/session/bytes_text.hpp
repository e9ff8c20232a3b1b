// Formats numbers of bytes for people.
#pragma once

#include <cstddef>
#include <string>

namespace actzip::session {

/// "512 B", "4.0 GiB".
std::string bytes_text(std::size_t bytes);

}  // namespace actzip::session
