# Defines the target actzip_libpaddle, an installed paddlepaddle, and sets actzip_paddle_version to its version.
# ACTZIP_PADDLE_DIR is the folder that holds Paddle's include/ and libs/. By default it is that of ACTZIP_PADDLE_PYTHON,
# which is the Python of .venv-paddle if there is one.
include_guard(GLOBAL)
if(NOT ACTZIP_PADDLE_PYTHON)
  find_program(ACTZIP_PADDLE_PYTHON python3 PATHS ${PROJECT_SOURCE_DIR}/.venv-paddle/bin NO_DEFAULT_PATH)
  find_program(ACTZIP_PADDLE_PYTHON python3 REQUIRED)
endif()
if(NOT ACTZIP_PADDLE_DIR)
  execute_process(COMMAND ${ACTZIP_PADDLE_PYTHON} -c "import importlib.util as u; print(u.find_spec('paddle').submodule_search_locations[0])"
                  OUTPUT_VARIABLE paddle_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT paddle_dir)
    message(FATAL_ERROR "${ACTZIP_PADDLE_PYTHON} has no paddle: install paddlepaddle, or set ACTZIP_PADDLE_DIR or ACTZIP_PADDLE_PYTHON")
  endif()
  set(ACTZIP_PADDLE_DIR ${paddle_dir} CACHE PATH "The folder that holds Paddle's include/ and libs/" FORCE)
endif()
file(STRINGS ${ACTZIP_PADDLE_DIR}/version/__init__.py actzip_paddle_version REGEX "^full_version")
string(REGEX REPLACE "^[^'\"]*['\"]([^'\"]*)['\"].*" "\\1" actzip_paddle_version "${actzip_paddle_version}")
execute_process(COMMAND ${ACTZIP_PADDLE_PYTHON} -c "import sysconfig; print(sysconfig.get_path('include'))"
                OUTPUT_VARIABLE actzip_paddle_python_include OUTPUT_STRIP_TRAILING_WHITESPACE)

include(${CMAKE_CURRENT_LIST_DIR}/cxx_runtime.cmake)
add_library(actzip_libpaddle INTERFACE IMPORTED)
target_include_directories(actzip_libpaddle SYSTEM INTERFACE ${ACTZIP_PADDLE_DIR}/include
                           ${ACTZIP_PADDLE_DIR}/include/third_party ${actzip_paddle_python_include})
target_link_libraries(actzip_libpaddle INTERFACE ${ACTZIP_PADDLE_DIR}/base/libpaddle.so ${ACTZIP_PADDLE_DIR}/libs/libphi.so
                      ${ACTZIP_PADDLE_DIR}/libs/libphi_core.so ${ACTZIP_PADDLE_DIR}/libs/libcommon.so
                      ${ACTZIP_PADDLE_DIR}/libs/libiomp5.so ${ACTZIP_CXX_RUNTIME})
target_link_options(actzip_libpaddle INTERFACE -Wl,--allow-shlib-undefined)
