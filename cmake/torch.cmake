# Defines the target actzip_libtorch, an installed torch (Python's package or LibTorch, CPU or CUDA), and sets
# actzip_torch_version to its version. ACTZIP_TORCH_DIR is the folder that holds torch's include/ and lib/. By default
# it is that of the torch that ACTZIP_TORCH_PYTHON imports. actzip_link_torch(target) links a program with torch.
if(NOT ACTZIP_TORCH_DIR)
  if(NOT ACTZIP_TORCH_PYTHON)
    find_program(ACTZIP_TORCH_PYTHON python3 PATHS ${PROJECT_SOURCE_DIR}/.venv/bin NO_DEFAULT_PATH)
    find_program(ACTZIP_TORCH_PYTHON python3 REQUIRED)
  endif()
  execute_process(COMMAND ${ACTZIP_TORCH_PYTHON} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
                  OUTPUT_VARIABLE torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT torch_dir)
    message(FATAL_ERROR "${ACTZIP_TORCH_PYTHON} has no torch: install it, or set ACTZIP_TORCH_DIR or ACTZIP_TORCH_PYTHON")
  endif()
  set(ACTZIP_TORCH_DIR ${torch_dir} CACHE PATH "The folder that holds torch's include/ and lib/" FORCE)
endif()

# Python's package has its version in version.py, LibTorch has it in build-version.
if(EXISTS ${ACTZIP_TORCH_DIR}/version.py)
  file(STRINGS ${ACTZIP_TORCH_DIR}/version.py actzip_torch_version REGEX "^__version__")
  string(REGEX REPLACE "^[^'\"]*['\"]([^'\"]*)['\"].*" "\\1" actzip_torch_version "${actzip_torch_version}")
else()
  file(STRINGS ${ACTZIP_TORCH_DIR}/build-version actzip_torch_version LIMIT_COUNT 1)
endif()

if(NOT ACTZIP_FUZZ)  # clang may come without it, and fuzzers start no threads
  find_package(OpenMP REQUIRED COMPONENTS CXX)  # the pool of torch's at::parallel_for
endif()
include(${CMAKE_CURRENT_LIST_DIR}/cxx_runtime.cmake)
if(NOT TARGET actzip_libtorch)
  add_library(actzip_libtorch INTERFACE IMPORTED)
  target_include_directories(actzip_libtorch INTERFACE ${ACTZIP_TORCH_DIR}/include
                             ${ACTZIP_TORCH_DIR}/include/torch/csrc/api/include)
  target_link_libraries(actzip_libtorch INTERFACE ${ACTZIP_TORCH_DIR}/lib/libtorch_cpu.so
                        ${ACTZIP_TORCH_DIR}/lib/libc10.so ${ACTZIP_CXX_RUNTIME} $<TARGET_NAME_IF_EXISTS:OpenMP::OpenMP_CXX>)
endif()

# Links a program of this project with torch.
function(actzip_link_torch target)
  target_link_libraries(${target} PRIVATE actzip_libtorch)
  # Without NDEBUG, torch's headers compile checks into every operator, each with a warning.
  target_compile_definitions(${target} PRIVATE NDEBUG)
  # Set by hand, because CMake would warn that torch's folder also contains an OpenMP runtime.
  set_target_properties(${target} PROPERTIES SKIP_BUILD_RPATH ON)
  target_link_options(${target} PRIVATE -Wl,-rpath,${ACTZIP_TORCH_DIR}/lib)
endfunction()
