# skein_depends: the libraries of the run time.  MPI, CUDA and NCCL are never needed.
find_package(PkgConfig REQUIRED)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
pkg_check_modules(yaml REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(zlib REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(openblas IMPORTED_TARGET openblas)

add_library(skein_depends INTERFACE)
target_link_libraries(skein_depends INTERFACE PkgConfig::yaml PkgConfig::jansson PkgConfig::pcre2
                                              PkgConfig::zlib Threads::Threads m)
if(openblas_FOUND)
  target_link_libraries(skein_depends INTERFACE PkgConfig::openblas)
else() # some systems ship OpenBLAS without a .pc file
  find_library(OPENBLAS_LIBRARY openblas REQUIRED)
  find_path(OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas REQUIRED)
  target_include_directories(skein_depends SYSTEM INTERFACE ${OPENBLAS_INCLUDE})
  target_link_libraries(skein_depends INTERFACE ${OPENBLAS_LIBRARY})
endif()
