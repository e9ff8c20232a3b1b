#include "openmp_executor.hpp"

#include <omp.h>

namespace actzip::cli {

void OpenMpExecutor::run(std::int64_t count, Task task, void* context) {
  if (threads_ == 1) {
    for (std::int64_t i = 0; i < count; ++i) task(context, i);
    return;
  }
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 1)
  for (std::int64_t i = 0; i < count; ++i) task(context, i);
}

int available_threads() { return omp_get_num_procs(); }

}  // namespace actzip::cli
