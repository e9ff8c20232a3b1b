# What `cmake --install` installs, so that find_package(actzip) defines actzip::core, and actzip::torch if it was built.
include(CMakePackageConfigHelpers)
set(actzip_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/actzip)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/actzip DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
install(TARGETS actzip_core actzip_cpu actzip_cuda actzip_format EXPORT actzipTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET actzip_torch)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/adapters/torch/include/actzip DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS actzip_torch EXPORT actzipTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/torch.cmake ${PROJECT_SOURCE_DIR}/cmake/cxx_runtime.cmake
          DESTINATION ${actzip_package_dir})
  include(${PROJECT_SOURCE_DIR}/cmake/torch.cmake)  # the package checks the version
endif()
install(EXPORT actzipTargets NAMESPACE actzip:: DESTINATION ${actzip_package_dir})
if(TARGET actzip)
  install(TARGETS actzip RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET actzip-train)
  install(TARGETS actzip-train RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/actzipConfig.cmake.in ${PROJECT_BINARY_DIR}/actzipConfig.cmake
                              INSTALL_DESTINATION ${actzip_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/actzipConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/actzipConfig.cmake ${PROJECT_BINARY_DIR}/actzipConfigVersion.cmake
        DESTINATION ${actzip_package_dir})
