# actzip_link_package() creates the package build/python/actzip out of links to the sources. Extensions are built into
# it, so actzip can be imported from there without being installed.
include_guard(GLOBAL)

function(actzip_link_package)
  set(package ${PROJECT_BINARY_DIR}/python/actzip)
  file(MAKE_DIRECTORY ${package})
  file(GLOB modules CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/actzip/*.py)
  foreach(module ${modules})
    get_filename_component(name ${module} NAME)
    file(CREATE_LINK ${module} ${package}/${name} SYMBOLIC)
  endforeach()
  foreach(folder compat compiled nn paddle)
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/actzip/${folder} ${package}/${folder} SYMBOLIC)
  endforeach()
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/apps/bench ${package}/bench SYMBOLIC)
endfunction()
