#include "cpu/loops/level.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {

// Each name stands for the overload of its place's codec.
constinit const Loops kLoops = {{encode, decode}, {encode, decode}, {encode, decode}, {encode, decode},
                                {encode, decode}, {encode, decode}, {encode, decode}, measure};

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
