# actzip_link_package() makes build/python/actzip a package of links to the sources, in which extensions are put: a
# folder to import actzip from without installing it.
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
