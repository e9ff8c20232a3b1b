# Installs BUILD_DIR into a fresh prefix, then configures, builds and runs SOURCE_DIR/examples/EXAMPLE against it.
set(prefix ${BUILD_DIR}/install_test/${EXAMPLE}/prefix)
set(example ${BUILD_DIR}/install_test/${EXAMPLE}/build)
file(REMOVE_RECURSE ${BUILD_DIR}/install_test/${EXAMPLE})

set(flags)
if(SANITIZERS)
  set(flags -DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZERS})
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
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples/${EXAMPLE} -B ${example} -G Ninja -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${prefix} ${flags})
run(${CMAKE_COMMAND} --build ${example})
run(${example}/${EXAMPLE})
message(STATUS "${EXAMPLE} printed: ${output}")
