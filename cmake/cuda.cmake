# Decides whether CUDA kernels are built, and for which GPUs. Sets ACTZIP_WITH_CUDA.
set(ACTZIP_WITH_CUDA OFF)
if(NOT ACTZIP_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "ACTZIP_CUDA is '${ACTZIP_CUDA}'; allowed are AUTO, ON and OFF")
endif()

if(NOT ACTZIP_CUDA STREQUAL "OFF")
  find_program(ACTZIP_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(ACTZIP_NVCC)
  if(ACTZIP_NVCC)
    set(ACTZIP_WITH_CUDA ON)
  elseif(ACTZIP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ACTZIP_CUDA=ON, but nvcc is neither on PATH nor in /usr/local/cuda/bin. "
                        "Install the CUDA toolkit (12 or newer), or configure with ACTZIP_CUDA=OFF.")
  endif()
endif()

if(ACTZIP_WITH_CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    # The real path: a link to nvcc in another folder would hide the toolkit's headers and libraries.
    file(REAL_PATH ${ACTZIP_NVCC} CMAKE_CUDA_COMPILER)
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)  # newer GPUs compile the virtual one when they load it
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # unknown to CMake before 3.25.2, known to nvcc since 12.0
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  message(STATUS "actzip: CUDA kernels with nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
else()
  message(STATUS "actzip: no CUDA kernels (ACTZIP_CUDA=${ACTZIP_CUDA}); the GPU is answered by src/cuda/stub.cpp")
endif()
