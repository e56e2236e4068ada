# skein_parts(VAR all | KIND...): tables of parts, as generated C files, into VAR.
# tools/parts.sh writes them at build time; the list of files is on its command line, so
# that a part that comes or goes rewrites its table and nothing else.
file(GLOB part_files RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS parts/*/*.c)
file(GLOB part_folders LIST_DIRECTORIES true RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS parts/*)
file(GLOB_RECURSE part_headers CONFIGURE_DEPENDS src/*.h)
list(SORT part_files)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/parts)

function(skein_table name what)
  add_custom_command(
    OUTPUT parts/${name}.c
    COMMAND tools/parts.sh ${CMAKE_BINARY_DIR}/parts/${name}.c ${what} ${ARGN}
    DEPENDS tools/parts.sh ${part_headers}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
    COMMENT "Table of ${name} parts")
endfunction()

foreach(folder ${part_folders})
  if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/${folder})
    cmake_path(GET folder FILENAME kind)
    set(files ${part_files})
    list(FILTER files INCLUDE REGEX "^parts/${kind}/")
    if(files) # else a GPU alone has such parts: cuda.cmake
      list(APPEND part_kinds ${kind})
      skein_table(${kind} ${kind} ${files})
    endif()
  endif()
endforeach()
skein_table(kinds --kinds ${part_files})

function(skein_parts var)
  set(kinds ${ARGN})
  if(kinds STREQUAL "all")
    set(kinds ${part_kinds} kinds)
  endif()
  list(TRANSFORM kinds REPLACE "(.+)" "${CMAKE_BINARY_DIR}/parts/\\1.c")
  set(${var} ${kinds} PARENT_SCOPE)
endfunction()
