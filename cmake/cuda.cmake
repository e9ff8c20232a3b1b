# Decides whether CUDA kernels are built, and for which GPUs. Sets ACTZIP_WITH_CUDA.
set(ACTZIP_WITH_CUDA OFF)
if(NOT ACTZIP_CUDA MATCHES "^(AUTO|NVCC|ON|OFF)$")
  message(FATAL_ERROR "ACTZIP_CUDA is '${ACTZIP_CUDA}'; allowed are AUTO, NVCC, ON and OFF")
endif()

# The compute capabilities of this machine's GPUs, as 90 for 9.0. Empty if there is no GPU or no driver.
set(actzip_gpus)
find_program(ACTZIP_NVIDIA_SMI nvidia-smi)
mark_as_advanced(ACTZIP_NVIDIA_SMI)
if(ACTZIP_NVIDIA_SMI)
  execute_process(COMMAND ${ACTZIP_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE capabilities ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+" actzip_gpus "${capabilities}")
  list(TRANSFORM actzip_gpus REPLACE "\\." "")
  list(REMOVE_DUPLICATES actzip_gpus)
  # Kernels use bf16 products and warp-wide reductions, which exist from 8.0 on.
  set(found ${actzip_gpus})
  list(FILTER actzip_gpus EXCLUDE REGEX "^[5-7].$")
  if(found AND NOT actzip_gpus)
    message(WARNING "this machine's GPU has compute capability ${found}; actzip's kernels need 80 or newer and are left out")
  endif()
endif()

if(NOT ACTZIP_CUDA STREQUAL "OFF" AND NOT (ACTZIP_CUDA STREQUAL "AUTO" AND NOT actzip_gpus))
  find_program(ACTZIP_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(ACTZIP_NVCC)
  if(ACTZIP_NVCC)
    set(ACTZIP_WITH_CUDA ON)
  elseif(ACTZIP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ACTZIP_CUDA=ON, but nvcc is neither on PATH nor in /usr/local/cuda/bin. "
                        "Install the CUDA toolkit (12 or newer), or configure with ACTZIP_CUDA=OFF.")
  elseif(ACTZIP_CUDA STREQUAL "AUTO")
    message(WARNING "this machine has a GPU, but nvcc is neither on PATH nor in /usr/local/cuda/bin: "
                    "CUDA kernels are left out. Install the CUDA toolkit (12 or newer) to have them.")
  endif()
endif()

# Sets `result` to the value for CMAKE_CUDA_ARCHITECTURES: this machine's GPUs, or if it has none, those of ACTZIP_GPUS
# that nvcc knows. The last of these is also built as virtual code, which newer GPUs compile when they load it.
function(actzip_choose_gpus result)
  if(actzip_gpus)
    list(TRANSFORM actzip_gpus APPEND -real)
    set(${result} ${actzip_gpus} PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${ACTZIP_NVCC} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  foreach(gpu ${ACTZIP_GPUS})
    if(known MATCHES "compute_${gpu}[\r\n]")
      list(APPEND chosen ${gpu}-real)
      set(last ${gpu})
    endif()
  endforeach()
  if(NOT chosen)
    message(FATAL_ERROR "ACTZIP_GPUS is '${ACTZIP_GPUS}'; ${ACTZIP_NVCC} knows none of them, but ${known}")
  endif()
  set(${result} ${chosen} ${last}-virtual PARENT_SCOPE)
endfunction()

# Compiles each .cu file of this folder alone, because the compile time goes into kernels, not into headers. CMake
# before 3.31 never combines .cu files anyway.
function(actzip_compile_kernels_alone)
  file(GLOB kernels *.cu)
  set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

if(ACTZIP_WITH_CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    # The real path: through a symbolic link in another folder, nvcc would not find the toolkit's headers and libraries.
    file(REAL_PATH ${ACTZIP_NVCC} CMAKE_CUDA_COMPILER)
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    actzip_choose_gpus(CMAKE_CUDA_ARCHITECTURES)
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
  message(STATUS "actzip: no CUDA kernels (ACTZIP_CUDA=${ACTZIP_CUDA}); stub.cpp in src/cuda and src/ops answers for the GPU")
endif()
