#include "openmp_executor.hpp"

#include <sched.h>

#include <algorithm>

namespace actzip::cli {

void OpenMpExecutor::run(std::int64_t count, Task task, void* context) {
  if (threads_ == 1) {
    for (std::int64_t i = 0; i < count; ++i) task(context, i);
    return;
  }
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 1)
  for (std::int64_t i = 0; i < count; ++i) task(context, i);
}

int available_threads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? std::max(CPU_COUNT(&allowed), 1) : 1;
}

}  // namespace actzip::cli
