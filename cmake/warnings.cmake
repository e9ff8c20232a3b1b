# Warnings for everything below this folder. They are errors unless ACTZIP_WERROR is off.
set(actzip_warnings -Wall -Wextra -Wpedantic -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND actzip_warnings -Wno-sign-conversion)  # g++ does not count it to -Wconversion
  if(NOT CMAKE_UNITY_BUILD)
    list(APPEND actzip_warnings -Wshadow)  # looks at the names of all sources in a batch
  endif()
else()
  list(APPEND actzip_warnings -Wshadow=local)  # a constructor's parameter may be called like the member it sets
  if(CMAKE_UNITY_BUILD)
    list(APPEND actzip_warnings -Wno-subobject-linkage)  # takes every source that another one includes for a header
  endif()
endif()
# nvcc's generated host code is not pedantic.
set(actzip_cuda_warnings -Xcompiler=-Wall,-Wextra)
if(ACTZIP_WERROR)
  list(APPEND actzip_warnings -Werror)
  list(APPEND actzip_cuda_warnings "SHELL:-Werror all-warnings" -Xcompiler=-Werror)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${actzip_warnings}>" "$<$<COMPILE_LANGUAGE:CUDA>:${actzip_cuda_warnings}>")
