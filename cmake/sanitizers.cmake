# Sanitizers for host code (ACTZIP_SANITIZE: OFF, address or thread), and libFuzzer's coverage for the fuzzers. Sets
# actzip_python_environment to the environment that Python needs to load an instrumented extension.
if(ACTZIP_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "ACTZIP_FUZZ needs clang; the compiler is ${CMAKE_CXX_COMPILER_ID}. Set CXX=clang++.")
endif()
if(NOT ACTZIP_SANITIZE MATCHES "^(OFF|address|thread)$")
  message(FATAL_ERROR "ACTZIP_SANITIZE is '${ACTZIP_SANITIZE}'; allowed are OFF, address (with undefined behaviour) and thread")
endif()

set(actzip_sanitizers)
if(ACTZIP_SANITIZE STREQUAL "thread")
  set(actzip_sanitizers thread)
elseif(ACTZIP_SANITIZE STREQUAL "address" OR ACTZIP_FUZZ)
  set(actzip_sanitizers address,undefined)
endif()
if(actzip_sanitizers)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${actzip_sanitizers};-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=${actzip_sanitizers})
endif()
if(ACTZIP_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# The interpreter is not instrumented, so the sanitizer's runtime has to be loaded before it; and so has the C++ runtime,
# whose functions for exceptions AddressSanitizer looks up when it starts. Leak detection is off, because Python and
# torch leak by design. Freed memory is reused soon: some tests measure how much the process has.
set(actzip_python_environment)
set(actzip_suppressions ${PROJECT_SOURCE_DIR}/tests/sanitizers)
if(ACTZIP_SANITIZE STREQUAL "address")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libasan.so OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.so.6 OUTPUT_VARIABLE exceptions OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(actzip_python_environment "LD_PRELOAD=${runtime}:${exceptions}"
      "ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=1" "UBSAN_OPTIONS=print_stacktrace=1")
elseif(ACTZIP_SANITIZE STREQUAL "thread")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libtsan.so OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(actzip_python_environment "LD_PRELOAD=${runtime}" "TSAN_OPTIONS=suppressions=${actzip_suppressions}/tsan.supp")
endif()
