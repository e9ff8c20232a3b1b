// How the texts of a codec are written, for help and messages.
#pragma once

#include <string>

#include "actzip/spec.hpp"

namespace actzip::codec {

/// Returns what may follow the codec's name: "[:1..4][:mask][:group=128|256]".
std::string grammar_of(const CodecSpec& spec);

}  // namespace actzip::codec
