// Includes every public header: activation codecs for training, on CPU and CUDA. Start with codec.hpp or session.hpp.
#pragma once

#include "actzip/activation.hpp"    // IWYU pragma: export
#include "actzip/backend.hpp"       // IWYU pragma: export
#include "actzip/batch_norm.hpp"    // IWYU pragma: export
#include "actzip/budget.hpp"        // IWYU pragma: export
#include "actzip/codec.hpp"         // IWYU pragma: export
#include "actzip/dual.hpp"          // IWYU pragma: export
#include "actzip/error.hpp"         // IWYU pragma: export
#include "actzip/interval.hpp"      // IWYU pragma: export
#include "actzip/levels.hpp"        // IWYU pragma: export
#include "actzip/memory.hpp"        // IWYU pragma: export
#include "actzip/plan.hpp"          // IWYU pragma: export
#include "actzip/policy.hpp"        // IWYU pragma: export
#include "actzip/registry.hpp"      // IWYU pragma: export
#include "actzip/report.hpp"        // IWYU pragma: export
#include "actzip/row_norm.hpp"      // IWYU pragma: export
#include "actzip/saved_tensor.hpp"  // IWYU pragma: export
#include "actzip/segment_plan.hpp"  // IWYU pragma: export
#include "actzip/session.hpp"       // IWYU pragma: export
#include "actzip/spec.hpp"          // IWYU pragma: export
#include "actzip/stream.hpp"        // IWYU pragma: export
#include "actzip/types.hpp"         // IWYU pragma: export
#include "actzip/use.hpp"           // IWYU pragma: export
#include "actzip/version.hpp"       // IWYU pragma: export
#include "actzip/view.hpp"          // IWYU pragma: export
