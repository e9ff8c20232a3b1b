# Installs BUILD_DIR into a fresh prefix, then configures, builds and runs SOURCE_DIR/examples/cpp_minimal against it.
set(prefix ${BUILD_DIR}/install_test/prefix)
set(example ${BUILD_DIR}/install_test/build)
file(REMOVE_RECURSE ${BUILD_DIR}/install_test)

set(flags)
if(SANITIZE)
  set(flags -DCMAKE_CXX_FLAGS=-fsanitize=address,undefined)
endif()

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    string(JOIN " " command ${ARGV})
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
  set(output ${output} PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples/cpp_minimal -B ${example} -G Ninja -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${prefix} ${flags})
run(${CMAKE_COMMAND} --build ${example})
run(${example}/cpp_minimal)
message(STATUS "cpp_minimal printed: ${output}")
