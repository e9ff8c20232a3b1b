#include "cpu/loops/level.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {

// Each name is the overload for the codec of its position.
constinit const Loops kLoops = {{encode, decode}, {encode, decode}, {encode, decode}, {encode, decode},
                                {encode, decode}, {encode, decode}, {encode, decode}, measure};

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
