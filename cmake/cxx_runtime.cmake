# Code that is linked with torch must use the same shared C++ runtime as torch: exceptions thrown in backward pass
# through torch's libraries, and with a second runtime in the process they would crash it. Sets ACTZIP_CXX_RUNTIME to
# the library that has to be linked for that, which is mostly nothing. Fails if there is no such library.
include_guard(GLOBAL)

# Sets `result` to whether a library that throws uses the shared runtime when it is linked with the other arguments.
function(actzip_uses_shared_runtime result)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/cxx_runtime)
  file(WRITE ${folder}/throws.cpp "#include <stdexcept>\nvoid f() { throw std::runtime_error(\"x\"); }\n")
  separate_arguments(flags NATIVE_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_SHARED_LINKER_FLAGS}")
  get_directory_property(options LINK_OPTIONS)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} ${flags} -shared -fPIC ${folder}/throws.cpp -o ${folder}/throws.so ${ARGN} ${options}
                  RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
  set(${result} OFF PARENT_SCOPE)
  if(status EQUAL 0)
    file(STRINGS ${folder}/throws.so names REGEX "^lib(std)?c\\+\\+\\.so")
    if(names)
      set(${result} ON PARENT_SCOPE)
    endif()
  endif()
endfunction()

set(ACTZIP_CXX_RUNTIME "" CACHE INTERNAL "The shared C++ runtime, if the compiler has to be told")
actzip_uses_shared_runtime(actzip_runtime_is_shared)
if(NOT actzip_runtime_is_shared)
  # Linked before the archive that the compiler adds, so that nothing is taken from the archive. Torch cannot be loaded
  # without this library, so it exists.
  find_library(ACTZIP_SHARED_CXX_RUNTIME NAMES libstdc++.so.6 PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE})
  mark_as_advanced(ACTZIP_SHARED_CXX_RUNTIME)
  if(ACTZIP_SHARED_CXX_RUNTIME)
    set(ACTZIP_CXX_RUNTIME ${ACTZIP_SHARED_CXX_RUNTIME} CACHE INTERNAL "")
    actzip_uses_shared_runtime(actzip_runtime_is_shared ${ACTZIP_CXX_RUNTIME})
  endif()
  if(NOT actzip_runtime_is_shared)
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} links the C++ runtime statically, and torch uses the shared one: errors thrown in "
                        "backward would end the process. Install the compiler's shared libstdc++ (Debian: libstdc++-12-dev or newer), "
                        "or set ACTZIP_SHARED_CXX_RUNTIME to a libstdc++.so.6.")
  endif()
  message(STATUS "actzip: ${CMAKE_CXX_COMPILER} would link the C++ runtime statically; ${ACTZIP_CXX_RUNTIME} is linked instead")
endif()
