# skein_openmpi.so, skein_mpich.so: module/mpi.c, once for every MPI that is found here.
# The program opens them at run time and needs none of them.  They lie beside it, or, installed, in
# CMAKE_INSTALL_LIBDIR/skein.
#
# skein_modules: the targets that were made.
find_program(SKEIN_MPICC_OPENMPI mpicc.openmpi)
find_program(SKEIN_MPICC_MPICH mpicc.mpich)
find_program(SKEIN_MPICC mpicc) # whatever this system calls its one MPI
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/modules)
file(WRITE ${CMAKE_BINARY_DIR}/modules/which.c
     "#include <mpi.h>\n#ifdef OPEN_MPI\nskein_is_openmpi\n#elif defined MPICH\nskein_is_mpich\n#endif\n")

# The wrapper's own compiler may not be ours: both know a variable for that.
set(with_our_compiler ${CMAKE_COMMAND} -E env OMPI_CC=${CMAKE_C_COMPILER} MPICH_CC=${CMAKE_C_COMPILER})
set(module_flags ${skein_c_flags})
string(REGEX REPLACE "-fsanitize=[^ ]*|-fno-sanitize-recover=[^ ]*" "" module_flags "${module_flags}")
separate_arguments(module_flags)

function(skein_mpi_module wrapper)
  if(NOT wrapper)
    return()
  endif()
  execute_process(COMMAND ${with_our_compiler} ${wrapper} -E ${CMAKE_BINARY_DIR}/modules/which.c
                  OUTPUT_VARIABLE text ERROR_QUIET)
  if(NOT text MATCHES "skein_is_([a-z]+)")
    message(STATUS "MPI: ${wrapper} does not work, or is an MPI that skein does not know")
    return()
  endif()
  set(name ${CMAKE_MATCH_1})
  if(TARGET skein_${name})
    return()
  endif()
  message(STATUS "MPI: ${name}, by ${wrapper}")
  set(file ${CMAKE_BINARY_DIR}/skein_${name}.so)
  add_custom_command(
    OUTPUT ${file}
    COMMAND ${with_our_compiler} ${wrapper} -std=c11 -D_GNU_SOURCE ${module_flags} -O2 -fPIC -shared
            -I${CMAKE_SOURCE_DIR}/src -Wl,-z,relro,-z,now -o ${file} ${CMAKE_SOURCE_DIR}/module/mpi.c
    DEPENDS module/mpi.c src/comm/wire.h src/comm/comm.h src/coll/call.h src/coll/kinds.h
    COMMENT "Module skein_${name}.so" VERBATIM)
  add_custom_target(skein_${name} ALL DEPENDS ${file})
  set_property(GLOBAL APPEND PROPERTY skein_modules skein_${name})
endfunction()

foreach(wrapper ${SKEIN_MPICC_OPENMPI} ${SKEIN_MPICC_MPICH} ${SKEIN_MPICC})
  skein_mpi_module("${wrapper}")
endforeach()
get_property(skein_modules GLOBAL PROPERTY skein_modules)
if(NOT skein_modules)
  message(STATUS "MPI: none found, so skein runs on one host; libopenmpi-dev or libmpich-dev bring one")
endif()
