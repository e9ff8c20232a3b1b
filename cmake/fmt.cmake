# Defines fmt::fmt-header-only: an installed fmt, or the headers that come with torch, so that building the Python
# package needs only a compiler from the system.
find_package(fmt QUIET)
if(NOT TARGET fmt::fmt-header-only AND ACTZIP_TORCH)
  include(${CMAKE_CURRENT_LIST_DIR}/torch.cmake)
  if(EXISTS ${ACTZIP_TORCH_DIR}/include/fmt/format.h)
    # A folder that contains only a link to fmt: the core must not see torch's other headers.
    set(actzip_fmt_dir ${PROJECT_BINARY_DIR}/fmt_of_torch)
    file(MAKE_DIRECTORY ${actzip_fmt_dir})
    file(CREATE_LINK ${ACTZIP_TORCH_DIR}/include/fmt ${actzip_fmt_dir}/fmt SYMBOLIC)
    add_library(fmt::fmt-header-only INTERFACE IMPORTED)
    target_include_directories(fmt::fmt-header-only INTERFACE ${actzip_fmt_dir})
    target_compile_definitions(fmt::fmt-header-only INTERFACE FMT_HEADER_ONLY=1)
    message(STATUS "actzip: no fmt installed; the headers in ${ACTZIP_TORCH_DIR}/include/fmt are used")
  endif()
endif()
if(NOT TARGET fmt::fmt-header-only)
  message(FATAL_ERROR "actzip: fmt is neither installed nor in a torch: install it (Debian, Ubuntu: libfmt-dev), set fmt_DIR to "
                      "the folder of its fmt-config.cmake, or build with ACTZIP_TORCH=ON beside a torch that has include/fmt.")
endif()
