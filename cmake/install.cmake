# cmake --install BUILD [--prefix X]: the program, the libraries, skein.h, modules and .pc files.
#
# X may be another prefix than the one of the configuration, and the tree may be moved afterwards:
# everything finds everything else by its own place.  Only a CMAKE_INSTALL_LIBDIR that begins with
# a slash stays where it says.
install(TARGETS skein ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS skein_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET skein_program)
  install(TARGETS skein_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES include/skein.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(module ${skein_modules})
  install(FILES ${CMAKE_BINARY_DIR}/${module}.so DESTINATION ${CMAKE_INSTALL_LIBDIR}/skein)
endforeach()

# From the .pc files to the prefix, from the program to the modules.
set(pc_prefix ${CMAKE_INSTALL_PREFIX})
set(modules ${CMAKE_INSTALL_LIBDIR}/skein)
if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" up ${up})
  set(pc_prefix "\${pcfiledir}/${up}")
  file(RELATIVE_PATH modules /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR}/skein)
endif()
set_source_files_properties(src/comm/wire.c PROPERTIES COMPILE_DEFINITIONS SK_MODULES="${modules}")
foreach(dir LIBDIR INCLUDEDIR)
  set(pc_${dir} ${CMAKE_INSTALL_${dir}})
  if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_${dir}})
    set(pc_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()

# libskein.so knows what it leans on; who links libskein.a has to say it: skein-static.
set(pc_requires "yaml-0.1 jansson libpcre2-8 zlib")
set(pc_libs "-pthread -lm")
if(openblas_FOUND)
  string(APPEND pc_requires " openblas")
else()
  string(PREPEND pc_libs "-lopenblas ")
endif()
configure_file(cmake/skein.pc.in skein.pc @ONLY)
configure_file(cmake/skein-static.pc.in skein-static.pc @ONLY)
set(pc_files ${CMAKE_BINARY_DIR}/skein.pc ${CMAKE_BINARY_DIR}/skein-static.pc)

# The GPU half is a library of its own: pkg-config --libs skein-cuda brings both.
if(TARGET skein_cuda)
  install(TARGETS skein_cuda ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  get_target_property(pull skein_cuda INTERFACE_LINK_OPTIONS)
  list(TRANSFORM pull REPLACE "^LINKER:" "-Wl,")
  list(JOIN pull " " pc_pull)
  list(GET CUDAToolkit_LIBRARY_DIR 0 pc_cuda)
  configure_file(cmake/skein-cuda.pc.in skein-cuda.pc @ONLY)
  list(APPEND pc_files ${CMAKE_BINARY_DIR}/skein-cuda.pc)
endif()
install(FILES ${pc_files} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
